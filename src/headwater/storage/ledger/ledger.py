"""Ledger: the small facts that must be agreed on: the lake's format, leases, who was first, and the journal of runs.

In a SQLite file, or in Postgres where several machines work on a lake; synced at each commit, so a claim that was
answered survives a power cut. Statements keep to what both understand; no transaction is held across other I/O.
Twice is once: every method but `start_run` may be called again with the same arguments and changes nothing more.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from headwater.clock import Clock, parse_time, to_text
from headwater.errors import Conflict, InvalidRequest, NotFound
from headwater.storage.ledger import claims
from headwater.storage.ledger.claims import First, write_fact
from headwater.storage.ledger.database import Database, FencedDatabase, lost_lease
from headwater.storage.ledger.lease import Lease, Process
from headwater.storage.ledger.sqlite_database import SqliteDatabase

_SCHEMA: Final = (
    "create table if not exists lake (name text primary key, value text not null)",
    """create table if not exists leases (
        name text primary key, epoch bigint not null, held integer not null, owner text not null,
        pid bigint not null, started text not null, host text not null, place text not null,
        since text not null, renewed_at text not null, ttl_seconds double precision not null)""",
    *claims.SCHEMA,
    """create table if not exists runs (
        id {row_id}, kind text not null, started_at text not null, finished_at text,
        outcome text, detail text not null)""",
    # The journal is kept for ever; what is under way or lost is looked for at every start.
    "create index if not exists runs_unfinished on runs (kind, id) where outcome is null",
    """create table if not exists dismissed (
        event_id text not null, step text not null, fingerprint text not null, reason text not null,
        dismissed_at text not null, dismissed_by text not null, because text not null,
        primary key (event_id, step, fingerprint, reason))""",
    """create table if not exists labels (
        object_id text not null, key text not null, value text not null, labelled_at text not null,
        labelled_by text not null, primary key (object_id, key))""",
    "create index if not exists labels_by_key on labels (key, value)",
    """create table if not exists plans (
        id {row_id}, kind text not null, about text not null, steps text not null, begun_at text not null,
        finished_at text, outcome text)""",
    "create index if not exists plans_unfinished on plans (kind, id) where outcome is null",
    # Who may look in from afar, and what they did: neither travels with a backup, or what was revoked would come back.
    """create table if not exists tokens (
        id text primary key, name text not null, role text not null, customers text not null, digest text not null,
        made_at text not null, expires_at text, revoked_at text)""",
    """create table if not exists audit (
        id {row_id}, at text not null, token text, role text, client text not null, action text not null,
        status integer not null, detail text not null)""",
    """create table if not exists plan_steps (
        plan bigint not null, number bigint not null, begun_at text not null, ended_at text, result text,
        primary key (plan, number))""",
)
_LEASE_COLUMNS: Final = "name, epoch, owner, pid, started, host, place, since, renewed_at, ttl_seconds"


@dataclass(frozen=True, slots=True)
class Run:
    """A line of the journal; without an outcome it is still running, or died."""

    id: int
    kind: str
    started_at: datetime
    finished_at: datetime | None
    outcome: str | None
    detail: Mapping[str, Any]


class Ledger:
    def __init__(self, database: Database, *, prepare: bool = True) -> None:
        self._database = database
        if not prepare:
            return
        with self._database.transaction() as run:
            for statement in _SCHEMA:
                run(statement.format(**database.TYPES))

    def close(self) -> None:
        self._database.close()

    def fact(self, name: str) -> str | None:
        rows = self._database.query("select value from lake where name = ?", (name,))
        return str(rows[0][0]) if rows else None

    def facts(self, prefix: str) -> dict[str, str]:
        """Those whose names begin so, by the rest of the name."""
        query = f"select name, value from lake where substr(name, 1, {len(prefix):d}) = ?"
        rows = self._database.query(query, (prefix,))
        return {str(name).removeprefix(prefix): str(value) for name, value in rows}

    def forget_fact(self, name: str) -> None:
        with self._database.transaction() as run:
            run("delete from lake where name = ?", (name,))

    def set_fact(self, name: str, value: str) -> None:
        with self._database.transaction() as run:
            write_fact(run, name, value)

    def change_fact(self, name: str, change: Callable[[str | None], str]) -> str:
        """Set a fact to what `change` makes of it, with nobody in between; returns it."""
        with self._database.transaction() as run:
            # The write comes first: it holds other changers back, also where reading takes no lock.
            run("insert into lake values (?, '') on conflict (name) do update set value = lake.value", (name,))
            rows = run("select value from lake where name = ?", (name,))
            after = change(str(rows[0][0]) or None)
            run("update lake set value = ? where name = ?", (after, name))
        return after

    def clock(self, own: Clock) -> Clock:
        """What leases go by: a machine whose clock is ahead would take a living holder for silent."""
        return self._database.clock or own

    def acquire_lease(self, name: str, owner: str, ttl_seconds: float, now: datetime) -> Lease:
        """Conflict names who holds it. A holder that was killed on this machine, or fell silent, is succeeded."""
        with self._database.transaction() as run:
            rows = run(f"select held, {_LEASE_COLUMNS} from leases where name = ?", (name,))
            before = _lease(rows[0][1:]) if rows else None
            if before and rows[0][0] and before.is_live(now):
                raise Conflict(_held_by(before))
            epoch = before.epoch + 1 if before else 1
            lease = Lease(name, epoch, owner, Process.this(), now, now, ttl_seconds, bool(rows and rows[0][0]))
            run("delete from leases where name = ?", (name,))
            run(f"insert into leases (held, {_LEASE_COLUMNS}) values (1{', ?' * 10})", _lease_row(lease))
        return lease

    def heartbeat(self, lease: Lease, now: datetime) -> None:
        """Conflict where somebody else has taken over: stop, and write nothing more."""
        with self._database.transaction() as run:
            held = run("select 1 from leases where name = ? and epoch = ? and held = 1", (lease.name, lease.epoch))
            if not held:
                raise Conflict(lost_lease(lease.name))
            run("update leases set renewed_at = ? where name = ?", (to_text(now), lease.name))

    def raise_epoch(self, lease: Lease, above: int) -> Lease:
        """The same lease with an epoch above one that a table has seen: a ledger that was restored counts anew."""
        raised = replace(lease, epoch=max(lease.epoch, above + 1), takeover=True)
        with self._database.transaction() as run:
            values = (raised.epoch, lease.name, lease.epoch)
            run("update leases set epoch = ? where name = ? and epoch = ? and held = 1", values)
            if not self._database.changed:
                raise Conflict(lost_lease(lease.name))
        return raised

    def under(self, lease: Lease) -> "Ledger":
        """The same ledger for who works under a lease: once another has it, every change is refused."""
        return Ledger(FencedDatabase(self._database, lease), prepare=False)

    def release(self, lease: Lease) -> None:
        """The row stays, for its epoch."""
        with self._database.transaction() as run:
            run("update leases set held = 0 where name = ? and epoch = ?", (lease.name, lease.epoch))

    def holder(self, name: str, now: datetime) -> Lease | None:
        """Who has it and gives signs of life."""
        lease = self.held(name)
        return lease if lease and lease.is_live(now) else None

    def held(self, name: str) -> Lease | None:
        """As it was taken and not given back, whether its holder lives or not."""
        rows = self._database.query(f"select {_LEASE_COLUMNS} from leases where name = ? and held = 1", (name,))
        return _lease(rows[0]) if rows else None

    def claim_first(self, kind: str, rows: Sequence[tuple[str, str, int, int]]) -> dict[str, First]:
        """Claim (key, content, partition, offset) for whoever is first; returns who is, for each key.

        `kind` keeps spaces of keys apart: "event", "object". The first's content is told as it was given if it is the
        same, else as something else: only its hash is kept. A position that a log may give again has a partition below
        zero.
        """
        return claims.claim_first(self._database, kind, rows)

    def find_claims(self, kind: str, rows: Sequence[tuple[str, str]]) -> dict[str, tuple[bool, int]]:
        """Of (key, content), by key: whether the first had that content, and its offset. Claims nothing."""
        return claims.find_claims(self._database, kind, rows)

    def change_claims(self, kind: str, rows: Sequence[tuple[str, str]]) -> None:
        """Of (key, content): what is claimed for a key has this content from now on, at the position that it has; a key
        that nobody claimed stays so."""
        claims.change_claims(self._database, kind, rows)

    def forget_claims_from(self, partition: int, offset: int) -> int:
        """Drop what was claimed at or beyond a position but never committed; returns how many."""
        return claims.forget_claims_from(self._database, partition, offset)

    def forget_claims(self, kind: str, keys: Collection[str]) -> None:
        """Drop what was claimed for these keys, whoever was first: whose rows are gone may come again."""
        claims.forget_claims(self._database, kind, keys)

    def seal_claims(self, partition: int) -> None:
        """The partition begins anew, so its positions will be given again: what was claimed there stays claimed, by a
        position that nothing has."""
        claims.seal_claims(self._database, partition)

    def start_run(self, kind: str, now: datetime, detail: Mapping[str, Any] | None = None) -> int:
        with self._database.transaction() as run:
            row = (kind, to_text(now), json.dumps(detail or {}))
            ((run_id,),) = run("insert into runs (kind, started_at, detail) values (?, ?, ?) returning id", row)
        return int(run_id)

    def finish_run(self, run_id: int, outcome: str, now: datetime, detail: Mapping[str, Any] | None = None) -> None:
        """`detail` is added to what the run was started with."""
        with self._database.transaction() as run:
            rows = run("select detail from runs where id = ?", (run_id,))
            if not rows:
                raise NotFound(f"The journal knows no run {run_id}. See headwater status.")
            merged = json.dumps({**json.loads(rows[0][0]), **(detail or {})})
            run(
                "update runs set outcome = ?, finished_at = ?, detail = ? where id = ?",
                (outcome, to_text(now), merged, run_id),
            )

    def note_run(self, run_id: int, detail: Mapping[str, Any]) -> None:
        """How a run that is still at work stands; added to what is known of it."""
        with self._database.transaction() as run:
            rows = run("select detail from runs where id = ?", (run_id,))
            merged = json.dumps({**json.loads(rows[0][0]), **detail}) if rows else ""
            run("update runs set detail = ? where id = ?", (merged, run_id))

    def unfinished(self, kind: str) -> list[Run]:
        """What was started and has no outcome yet, the latest first."""
        return self._read_runs("where kind = ? and outcome is null order by id desc", (kind,))

    def runs(self, limit: int) -> list[Run]:
        """The latest first."""
        return self._read_runs("order by id desc limit ?", (limit,))

    def _read_runs(self, which: str, values: Sequence[Any]) -> list[Run]:
        columns = "id, kind, started_at, finished_at, outcome, detail"
        rows = self._database.query(f"select {columns} from runs {which}", values)
        return [
            Run(number, kind, parse_time(start), parse_time(end) if end else None, outcome, json.loads(detail))
            for number, kind, start, end, outcome, detail in rows
        ]


def open_ledger(uri: str) -> Ledger:
    """The choice by URI; Postgres's client is imported where it is chosen."""
    scheme, _, rest = uri.partition("://")
    if scheme == "sqlite" and rest.startswith("/"):
        database = SqliteDatabase(Path(rest.removeprefix("/")))
        return Ledger(database, prepare=not database.is_read_only)
    if scheme in {"postgresql", "postgres"}:
        from headwater.storage.ledger.postgres_database import PostgresDatabase

        return Ledger(PostgresDatabase(uri))
    raise InvalidRequest(
        f"ledger.uri is {uri.partition('@')[2] or uri}, which is not known here. "
        "Use sqlite:///file or postgresql://user@host/database."
    )


def _lease(row: Sequence[Any]) -> Lease:
    name, epoch, owner, pid, started, host, place, since, renewed_at, ttl_seconds = row
    process = Process(pid, started, host, place)
    return Lease(name, epoch, owner, process, parse_time(since), parse_time(renewed_at), ttl_seconds)


def _lease_row(lease: Lease) -> tuple[Any, ...]:
    holder = lease.process
    times = to_text(lease.since), to_text(lease.renewed_at), lease.ttl_seconds
    return lease.name, lease.epoch, lease.owner, holder.pid, holder.started, holder.host, holder.place, *times


def _held_by(lease: Lease) -> str:
    return (
        f"{lease.owner} is already at work on this lake: process {lease.process.pid} on {lease.process.host}, "
        f"since {to_text(lease.since)}. Stop it, or let it finish."
    )
