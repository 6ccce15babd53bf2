"""Access as the ledger knows it: tokens, and a line for every call that was refused or changed something."""

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from headwater.clock import parse_time, to_text
from headwater.domain.access import Token
from headwater.errors import NotFound
from headwater.storage.ledger.ledger import Ledger

AUDIT_ROWS_MAX: Final = 100_000  # a stranger who knocks for ever fills no disk
_TOKEN: Final = "id, name, role, customers, digest, made_at, expires_at, revoked_at"
_AUDIT: Final = "at, token, role, client, action, status, detail"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Who did what, from where, and what came of it as an HTTP status."""

    at: str
    token: str | None
    role: str | None
    client: str
    action: str
    status: int
    detail: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def add_token(ledger: Ledger, token: Token) -> None:
    times = [to_text(at) if at else None for at in (token.made_at, token.expires_at, token.revoked_at)]
    row = (token.id, token.name, token.role, json.dumps(token.customers), token.digest, *times)
    with ledger._database.transaction() as run:
        run(f"insert into tokens ({_TOKEN}) values (?, ?, ?, ?, ?, ?, ?, ?)", row)


def read_tokens(ledger: Ledger, identity: str | None = None) -> list[Token]:
    """The oldest first; or the one of that id."""
    which, values = ("", ()) if identity is None else (" where id = ?", (identity,))
    return [
        _token(row) for row in ledger._database.query(f"select {_TOKEN} from tokens{which} order by made_at", values)
    ]


def revoke_token(ledger: Ledger, identity: str, now: datetime) -> Token:
    """Twice is once."""
    with ledger._database.transaction() as run:
        run("update tokens set revoked_at = ? where id = ? and revoked_at is null", (to_text(now), identity))
    found = read_tokens(ledger, identity)
    if not found:
        raise NotFound(f"There is no token {identity}. See: headwater token")
    return found[0]


def note_audit(ledger: Ledger, row: AuditRow) -> None:
    values = (row.at, row.token, row.role, row.client, row.action, row.status, row.detail)
    with ledger._database.transaction() as run:
        ((number,),) = run(f"insert into audit ({_AUDIT}) values (?, ?, ?, ?, ?, ?, ?) returning id", values)
        if number % 1_000 == 0:
            run("delete from audit where id <= ?", (number - AUDIT_ROWS_MAX,))


def read_audit(ledger: Ledger, limit: int) -> list[AuditRow]:
    """The latest first."""
    rows = ledger._database.query(f"select {_AUDIT} from audit order by id desc limit ?", (limit,))
    return [AuditRow(*row) for row in rows]


def _token(row: tuple[Any, ...]) -> Token:
    identity, name, role, customers, digest, *times = row
    made_at, expires_at, revoked_at = (parse_time(at) if at else None for at in times)
    assert made_at is not None
    return Token(identity, name, role, tuple(json.loads(customers)), digest, made_at, expires_at, revoked_at)
