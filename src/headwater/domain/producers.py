"""Who may write for which customer: the rules of `[producers.NAME]`, and how a line's producer is known.

By the token in a header of its message, whose SHA-256 the section lists. A producer that has no token is known by the
field `producer` of its events: a word that anybody may write, which keeps a slip apart and no thief. `*` is whoever is
known by neither. Without any section everybody may write everything.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self

from headwater.domain.event_problems import Problem, shown
from headwater.domain.line import DETAIL_LETTERS, Line
from headwater.domain.quarantine import FORBIDDEN
from headwater.errors import InvalidRequest
from headwater.producer_section import ANYBODY, NOBODY
from headwater.settings import Settings

HEADER: Final = "headwater-token"
# Quarantine is read as a whole by who looks at it; of a longer line it has the beginning, and the log has the rest.
KEPT_LETTERS: Final = 64_000
_FIELD: Final = b'"producer"'
_TOLD: Final = re.compile(r"producer: (\S+) may not write for ")


@dataclass(frozen=True, slots=True)
class Producer:
    """A section; `customers` are names, in which a star stands for any letters."""

    name: str
    customers: tuple[str, ...]
    tokens: frozenset[str]

    def may_write_for(self, customer: str) -> bool:
        return any(_pattern(name).fullmatch(customer) for name in self.customers)


@dataclass(frozen=True, slots=True)
class Rules:
    """All sections of a lake; false where there are none. Small enough to travel with every task."""

    producers: Mapping[str, Producer]

    @classmethod
    def of(cls, settings: Settings) -> Self:
        made = {
            name: Producer(name, rule["customers"], frozenset(text.lower() for text in rule["token_sha256"]))
            for name, rule in settings.producers.items()
        }
        return cls(made)

    def __bool__(self) -> bool:
        return bool(self.producers)

    @property
    def want_tokens(self) -> bool:
        """Whether headers are worth reading."""
        return any(producer.tokens for producer in self.producers.values())

    def producer_of(self, value: bytes, token: str | None) -> str:
        """The name of who sent a line; `token` is the SHA-256 of the one in its header. `*` is nobody known."""
        for producer in self.producers.values():
            if token and token in producer.tokens:
                return producer.name
        claimed = self.producers.get(_claimed(value)) if _FIELD in value else None
        return claimed.name if claimed is not None and not claimed.tokens else ANYBODY

    def problem(self, name: str, customer: str) -> Problem | None:
        """None where that producer may write for the customer."""
        producer = self.producers.get(name)
        if not self.producers or (producer is not None and producer.may_write_for(customer)):
            return None
        who = NOBODY if name == ANYBODY else name
        section = f'[producers."{ANYBODY}"]' if name == ANYBODY else f"[producers.{name}]"
        allowed = f"has {', '.join(producer.customers) or 'none'}" if producer is not None else "is not there"
        return Problem("producer", f"{who} may not write for {shown(customer)}: {section} {allowed}")

    def require(self, name: str) -> None:
        """InvalidRequest where there is no such section."""
        if name not in self.producers:
            known = ", ".join(self.producers) or "none"
            raise InvalidRequest(f"There is no [producers.{name}] in headwater.toml. These are there: {known}.")

    def judged(self, line: Line, value: bytes, token: str | None) -> Line:
        """The line, unsound where its producer may not write for its customer; kept for a retry, as much as fits."""
        if not line.sound or (problem := self.problem(self.producer_of(value, token), line.customer or "")) is None:
            return line
        detail = str(problem)[:DETAIL_LETTERS]
        return line._replace(sound=False, payload=value.decode()[:KEPT_LETTERS], reason=FORBIDDEN, detail=detail)


def refused_producer(detail: str) -> str:
    """Who sent a line that was set aside, from its detail."""
    found = _TOLD.match(detail)
    return ANYBODY if found is None or found[1] == NOBODY else found[1]


def hashed(token: str) -> str:
    """As a section lists it."""
    return sha256(token.encode()).hexdigest()


def _claimed(value: bytes) -> str:
    found = json.loads(value).get("producer")
    return found if isinstance(found, str) else ""


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL)
