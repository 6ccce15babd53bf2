"""Page: a page of the web face, as a value: one file with what it asks, and one template. Its JSON is what it asks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.domain.access import READER, Visitor
from headwater.web.asked import Asked


@dataclass(frozen=True, slots=True)
class Page:
    """`address` may have parts in braces; `name` is its template, and what the navigation marks. Without a `title` in
    the navigation it is reached by links alone."""

    name: str
    address: str
    title: str
    ask: Callable[[Asked], dict[str, Any]]
    role: str = READER
    in_navigation: bool = True
    whole_lake: bool = False  # it tells of all customers, so it is not there for who sees only some

    def is_for(self, visitor: Visitor) -> bool:
        return visitor.may(self.role) and (visitor.sees_all or not self.whole_lake)
