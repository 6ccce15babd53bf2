"""Asked: one call as a page or an endpoint sees it: the lake, who asks, and what for, within what the caller may see.

A customer that the caller does not see is treated as one that is not there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import Any, Final

from headwater.domain.access import Visitor
from headwater.errors import InvalidRequest, NotFound, Unavailable
from headwater.lake import Lake

LIMIT_MAX: Final = 200
_QUERIES: Final = BoundedSemaphore(2)
_PATIENCE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Asked:
    lake: Lake
    visitor: Visitor
    query: Mapping[str, str]  # of the address, behind ?
    path: Mapping[str, str]

    def text(self, name: str) -> str | None:
        return (self.query.get(name) or "").strip() or None

    def number(self, name: str, default: int, most: int = LIMIT_MAX) -> int:
        given = self.text(name)
        if given is None:
            return default
        if not given.isascii() or not given.isdigit() or not 1 <= int(given[:9]) <= most:
            raise InvalidRequest(f"{name} must be a number from 1 to {most:,}.")
        return int(given)

    @property
    def customer(self) -> str | None:
        """The one that was asked for, or the only one that the caller sees. NotFound where it sees others."""
        named = self.text("customer")
        if named is not None and not self.visitor.sees(named):
            raise NotFound(f"There is no customer {named} here.")
        if named is None and len(self.visitor.customers) == 1:
            return self.visitor.customers[0]
        return named

    @property
    def customers(self) -> tuple[str | None, ...]:
        """Whose things to look for, one after the other; None is anybody's."""
        chosen = self.customer
        return self.visitor.customers if chosen is None and self.visitor.customers else (chosen,)

    def sql(self, query: str, **about: Any) -> dict[str, Any]:
        """As `lake.sql`, by few at once: a query takes memory and its time, and others want to look as well."""
        if not _QUERIES.acquire(timeout=_PATIENCE_SECONDS):
            raise Unavailable("Several queries are at work. Ask again in a moment.", 1.0)
        try:
            return self.lake.sql(query, **about)
        finally:
            _QUERIES.release()

    def seen_customers(self) -> list[dict[str, Any]]:
        """As `lake.customers`, those that the caller sees."""
        return [row for row in self.lake.customers() if self.visitor.sees(row["customer"])]

    def require_whole_lake(self) -> None:
        """What tells of all customers is not there for who sees only some."""
        if not self.visitor.sees_all:
            raise NotFound("There is no such page here.")

    def of_any_customer(self, find: Any) -> Any:
        """What `find(customer)` finds for the first customer that has it; NotFound where none has."""
        missing: NotFound | None = None
        for customer in self.customers:
            try:
                return find(customer)
            except NotFound as error:
                missing = missing or error
        raise missing or NotFound("There is nothing here.")
