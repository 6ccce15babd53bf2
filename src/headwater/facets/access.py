"""`lake.access`: who may look in from afar, by `headwater serve`. Each method mirrors a command."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headwater.components import Components
from headwater.domain.access import READER, Visitor, make_token, split_token

if TYPE_CHECKING:
    import builtins


class LakeAccess:
    """`lake.access.make("reader", customers=["acme"])` tells a token once; the lake keeps only its hash."""

    def __init__(self, components: Components) -> None:
        self._parts = components

    def make(
        self, role: str = READER, *, name: str = "", customers: Sequence[str] = (), days: float | None = None
    ) -> dict[str, Any]:
        """`{"token", "id", "name", "role", "customers", "made_at", "expires_at", "revoked_at"}`. A reader looks, a
        writer also puts and labels, an admin also tends the lake; without customers it sees all of them."""
        from headwater.storage.ledger.access import add_token

        now = self._parts.clock()
        expires_at = None if days is None else now + timedelta(days=days)
        token, text = make_token(role, name=name, customers=customers, now=now, expires_at=expires_at)
        add_token(self._parts.ledger, token)
        return {"token": text, **token.to_dict()}

    def list(self) -> list[dict[str, Any]]:
        """Every token there was, without what would let anybody in."""
        from headwater.storage.ledger.access import read_tokens

        return [token.to_dict() for token in read_tokens(self._parts.ledger)]

    def revoke(self, id: str) -> dict[str, Any]:
        """From the next call on it lets nobody in; twice is once. Its id or the whole token."""
        from headwater.storage.ledger.access import revoke_token

        split = split_token(id)
        return revoke_token(self._parts.ledger, split[0] if split else id, self._parts.clock()).to_dict()

    def visitor(self, token: str) -> Visitor | None:
        """Who comes with this token; None where it is wrong, expired or revoked."""
        from headwater.storage.ledger.access import read_tokens

        split = split_token(token)
        if split is None:
            return None
        found = read_tokens(self._parts.ledger, split[0])
        if not found or not found[0].is_good(split[1], self._parts.clock()):
            return None
        return Visitor(found[0].id, found[0].role, found[0].customers)

    def audit(self, *, limit: int = 100) -> "builtins.list[dict[str, Any]]":
        """Calls that were refused or changed something, the latest first."""
        from headwater.storage.ledger.access import read_audit

        return [row.to_dict() for row in read_audit(self._parts.ledger, limit)]

    def note(self, visitor: Visitor | None, client: str, action: str, status: int, detail: str = "") -> None:
        """A line of the audit."""
        from headwater.clock import to_text
        from headwater.storage.ledger.access import AuditRow, note_audit

        token, role = (visitor.token, visitor.role) if visitor else (None, None)
        now = to_text(self._parts.clock())
        note_audit(self._parts.ledger, AuditRow(now, token, role, client, action, status, detail))
