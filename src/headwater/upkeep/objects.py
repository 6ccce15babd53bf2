"""Objects: what is in the lake, whose and when, told by the events about it. Starts no JVM.

Reads   bronze.events
An object is told once, by the first event about it. What was put and not read yet is not there: `status` counts it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any, Final

from headwater.domain.keys import shown_path
from headwater.domain.meta import WantedFact
from headwater.domain.modality import INLINE, Modality
from headwater.errors import InvalidRequest
from headwater.storage.query.reader import run_sql
from headwater.storage.tables.catalog import Tables
from headwater.storage.tables.row_filter import literal

LIMIT_MAX: Final = 10_000
_COLUMNS: Final = (
    "object_id AS id, event_id, customer, modality, pointer.size AS size, pointer.content_type AS content_type, "
    "pointer.checksum AS checksum, occurred_at, bronze_at, thread, meta, seq"
)
_EACH: Final = "[*]"
_ANY: Final = {"*", "**"}  # to DuckDB, also between quotes
_PARTS_MAX: Final = 8  # a meta is no deeper
_MOST: Final = 9_223_372_036_854_775_807  # an event may claim any size


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects: of a customer, a modality, a time (not before `since`, before `until`), a thread; None is any.

    `where` are facts that each of them must have, of its meta or as a label.
    """

    customer: str | None = None
    modality: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    thread: str | None = None
    where: tuple[WantedFact, ...] = ()

    def check(self) -> None:
        if self.modality is not None and self.modality not in {one.value for one in Modality}:
            known = ", ".join(one.value for one in Modality)
            raise InvalidRequest(f"{self.modality} is no modality. These are: {known}.")
        if self.since and self.until and self.since >= self.until:
            raise InvalidRequest("since must lie before until.")

    def conditions(self) -> list[str]:
        """As SQL, of any table whose rows tell of objects."""
        named = {"customer": self.customer, "modality": self.modality, "thread": self.thread}
        conditions = [f"{name} = {literal(value)}" for name, value in named.items() if value is not None]
        conditions += [_known_by(wanted) for wanted in self.where]
        conditions += [f"occurred_at >= {literal(self.since)}"] if self.since else []
        return conditions + ([f"occurred_at < {literal(self.until)}"] if self.until else [])

    def to_dict(self) -> dict[str, Any]:
        return {
            "customer": self.customer,
            "modality": self.modality,
            "since": self.since.isoformat() if self.since else None,
            "until": self.until.isoformat() if self.until else None,
            "thread": self.thread,
            "where": {wanted.key: wanted.value for wanted in self.where},
        }


def _known_by(wanted: WantedFact) -> str:
    """As `facts_of` tells facts: an inner key is behind a dot, and a list, wherever it stands, has each of its values.
    A key is also looked for as it is written, dots and all."""
    if '"' in wanted.key or "\\" in wanted.key or _ANY & set(wanted.key.split(".")):
        raise InvalidRequest(f"{wanted.key} cannot be asked for: it has quotes, or a star alone. Ask in SQL: meta->>…")
    value = literal(wanted.value)
    found = [
        f"list_contains(json_extract_string(meta, {literal(path)}), {value})"
        if path.endswith(_EACH) or f"{_EACH}." in path
        else f"json_extract_string(meta, {literal(path)}) = {value}"
        for path in _paths(wanted.key)
    ]
    fact = f"coalesce({' OR '.join(found)}, false)"
    if wanted.otherwise:
        fact = f"({fact} AND object_id NOT IN ({_literals(wanted.otherwise)}))"
    return f"({fact} OR object_id IN ({_literals(wanted.labelled)}))" if wanted.labelled else fact


def _paths(key: str) -> list[str]:
    """Where a meta may have it: any value on the way may be a list. No key is empty, so two dots part nothing."""
    parts = key.split(".")
    ways = {(key,), tuple(parts)} if all(parts) and len(parts) <= _PARTS_MAX else {(key,)}
    lists = ((way, each) for way in ways for each in product(("", _EACH), repeat=len(way)))
    return sorted("$" + "".join(f'."{part}"{end}' for part, end in zip(way, each, strict=True)) for way, each in lists)


def _literals(values: frozenset[str]) -> str:
    return ", ".join(map(literal, sorted(values)))


def list_objects(catalog: Tables, chosen: Selection, *, limit: int, before: int | None = None) -> dict[str, Any]:
    """`{"objects": [{…}], "next"}`: the last that came first. `next` is the `before` of the page that follows."""
    chosen.check()
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidRequest(f"limit must be 1 to {LIMIT_MAX:,}; the rest is on the next page.")
    conditions = ["first_of_object", *chosen.conditions(), *([f"seq < {int(before)}"] if before is not None else [])]
    query = f"SELECT {_COLUMNS} FROM bronze.events WHERE {' AND '.join(conditions)} ORDER BY seq DESC LIMIT {limit + 1}"
    rows: Sequence[dict[str, Any]] = run_sql(catalog, query)["rows"]
    objects = [{**row, "name": _name(row)} for row in rows[:limit]]
    return {"objects": objects, "next": objects[-1]["seq"] if len(rows) > limit else None}


def _name(row: dict[str, Any]) -> str:
    """What a person wrote: behind modality, customer and, of files, the day."""
    return shown_path(row["id"]).split("/", 2 if row["modality"] in INLINE else 3)[-1]


def list_customers(catalog: Tables) -> list[dict[str, Any]]:
    """`[{"customer", "objects", "bytes", "first_at", "last_at", "modalities": {kind: n}}]`, by name."""
    rows = run_sql(catalog, _CUSTOMERS)["rows"]
    counts = [row.pop("counts") for row in rows]
    return [
        {**row, "modalities": dict(zip(row["modalities"], counted, strict=True))}
        for row, counted in zip(rows, counts, strict=True)
    ]


_CUSTOMERS: Final = f"""
    SELECT customer, sum(objects)::BIGINT AS objects, least(sum(bytes), {_MOST})::BIGINT AS bytes,
        min(first_at) AS first_at, max(last_at) AS last_at,
        list(modality ORDER BY modality) AS modalities, list(objects ORDER BY modality) AS counts
    FROM (
        SELECT customer, modality, count(*) AS objects, least(coalesce(sum(pointer.size), 0), {_MOST}) AS bytes,
            min(occurred_at) AS first_at, max(occurred_at) AS last_at
        FROM bronze.events WHERE first_of_object GROUP BY customer, modality)
    GROUP BY customer ORDER BY customer"""
