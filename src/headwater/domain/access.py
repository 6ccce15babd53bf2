"""Access: who may look in from afar, as a value: a role, the customers that it sees, and until when. Pure.

A token is told once, when it is made; what is kept of it is a hash. It has 192 bits of chance, so that a plain hash is
enough.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from headwater.clock import to_text
from headwater.errors import InvalidRequest

READER, WRITER, ADMIN = "reader", "writer", "admin"
# Each may do what those before it may: look, put and label, change what is at rest.
ROLES: Final = (READER, WRITER, ADMIN)
_PREFIX: Final = "hw"
_NAME_LETTERS: Final = 100


@dataclass(frozen=True, slots=True)
class Token:
    """`customers` are those that it sees; none named is all of them."""

    id: str
    name: str
    role: str
    customers: tuple[str, ...]
    digest: str
    made_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_good(self, secret: str, now: datetime) -> bool:
        """Whether it is this token's secret and its time has not come."""
        same = hmac.compare_digest(self.digest, digest_of(secret))
        return same and self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def to_dict(self) -> dict[str, Any]:
        """Without the hash."""
        times = {name: getattr(self, name) for name in ("made_at", "expires_at", "revoked_at")}
        told = {name: to_text(at) if at else None for name, at in times.items()}
        return {"id": self.id, "name": self.name, "role": self.role, "customers": list(self.customers), **told}


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who calls: by which token, as what, for whom."""

    token: str
    role: str
    customers: tuple[str, ...] = ()

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def sees_all(self) -> bool:
        return not self.customers

    def sees(self, customer: str | None) -> bool:
        return self.sees_all or customer in self.customers


def make_token(
    role: str, *, name: str, customers: Sequence[str], now: datetime, expires_at: datetime | None
) -> tuple[Token, str]:
    """The token to keep, and the text to hand out."""
    if role not in ROLES:
        raise InvalidRequest(f"{role} is no role. These are: {', '.join(ROLES)}.")
    if customers and role == ADMIN:
        raise InvalidRequest("An admin tends the whole lake, so it sees every customer. Make it a writer or a reader.")
    if len(name) > _NAME_LETTERS:
        raise InvalidRequest(f"A token's name has at most {_NAME_LETTERS} letters. Say it shorter.")
    if expires_at is not None and expires_at <= now:
        raise InvalidRequest("That token would have expired already. Name a time that is to come.")
    identity, secret = secrets.token_hex(4), secrets.token_urlsafe(24)
    token = Token(identity, name, role, tuple(sorted(set(customers))), digest_of(secret), now, expires_at)
    return token, f"{_PREFIX}_{identity}_{secret}"


def split_token(text: str) -> tuple[str, str] | None:
    """Its id and its secret; None where it is no token."""
    prefix, _, rest = text.strip().partition("_")
    identity, _, secret = rest.partition("_")
    return (identity, secret) if prefix == _PREFIX and identity and secret else None


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
