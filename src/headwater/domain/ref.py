"""Ref: what a reader names a table's state by: a snapshot, a tag or branch, or a time.

What a person writes is told apart by its form alone, never by what happens to be in a table:

`4711`                                 digits only: a snapshot's id
`2026-03-02`, `2026-03-02T10:00:00Z`   a date, or a date and a time in ISO 8601: a time; without a zone it is UTC
anything else                          a tag's or branch's name; Iceberg keeps both under one set of names

`snapshot:`, `tag:` or `time:` in front says which one is meant, for a tag that is called `4711` or `2026-03-02`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, Self, TypeAlias

from headwater.clock import parse_time
from headwater.errors import InvalidRequest

_SNAPSHOT, _TAG, _TIME = "snapshot:", "tag:", "time:"
_ID_MAX: Final = 2**63 - 1
_DIGITS: Final = re.compile(r"[0-9]+")
# A tag may well begin with a date: 2026-03-02-release is none.
_LOOKS_LIKE_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d.*)?", re.ASCII)
_FORMS: Final = "a snapshot's id (4711), a tag or branch (before-import) or a time (2026-03-02T10:00:00Z)"


@dataclass(frozen=True, slots=True)
class Ref:
    """Exactly one of the three is set. `name` is a tag's or a branch's."""

    snapshot_id: int | None = None
    name: str | None = None
    at: datetime | None = None

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.snapshot_id, self.name, self.at)) != 1:
            raise InvalidRequest(f"A ref is one of three: {_FORMS}.")
        if self.snapshot_id is not None and not 0 <= self.snapshot_id <= _ID_MAX:
            raise InvalidRequest(f"{self.snapshot_id} cannot be a snapshot's id, which has 63 bits.")
        if self.name == "":
            raise InvalidRequest(f"A tag has a name. A ref is {_FORMS}.")
        if self.at is not None and self.at.tzinfo is not UTC:
            raise InvalidRequest("A ref's time is in UTC. Make it by Ref.of, which converts.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """InvalidRequest where it is none, such as a date that no calendar has."""
        text = text.lstrip()
        if text.startswith(_TAG):
            return cls(name=text.removeprefix(_TAG))
        text = text.rstrip()
        if text.startswith(_SNAPSHOT):
            return cls(snapshot_id=_snapshot_id(text.removeprefix(_SNAPSHOT)))
        if text.startswith(_TIME):
            return cls(at=_time(text.removeprefix(_TIME)))
        if _DIGITS.fullmatch(text):
            return cls(snapshot_id=_snapshot_id(text))
        if _LOOKS_LIKE_TIME.fullmatch(text):
            return cls(at=_time(text))
        return cls(name=text)

    @classmethod
    def of(cls, value: "AsOf") -> Self:
        """From Python: text as a person writes it, an int for a snapshot, a datetime or a date for a time."""
        match value:
            case Ref():
                return cls(value.snapshot_id, value.name, value.at)
            case str():
                return cls.parse(value)
            case int() if not isinstance(value, bool):
                return cls(snapshot_id=value)
            case datetime() | date():
                return cls(at=_time(value.isoformat()))
        raise InvalidRequest(f"{value!r} is no ref. It is {_FORMS}.")

    @property
    def at_ms(self) -> int | None:
        """Milliseconds since 1970, as Iceberg keeps times; what is finer is cut."""
        if self.at is None:
            return None
        since = self.at - _EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000

    def __str__(self) -> str:
        """As a person writes it, and as `parse` takes it; with a prefix only where it needs one."""
        if self.snapshot_id is not None:
            return str(self.snapshot_id)
        if self.at is not None:
            return self.at.isoformat().replace("+00:00", "Z")
        name = str(self.name)
        plain = name == name.strip() and not name.startswith((_SNAPSHOT, _TAG, _TIME))
        looks_else = _DIGITS.fullmatch(name) or _LOOKS_LIKE_TIME.fullmatch(name)
        return name if plain and not looks_else else f"{_TAG}{name}"


AsOf: TypeAlias = Ref | str | int | datetime | date
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_ref(value: AsOf | None) -> Ref | None:
    return None if value is None else Ref.of(value)


def _snapshot_id(text: str) -> int:
    # Longer than any id, and int() refuses some thousands of digits with words of its own.
    if not _DIGITS.fullmatch(text) or len(text.lstrip("0")) > len(str(_ID_MAX)):
        raise InvalidRequest(f"{text[:80]} cannot be a snapshot's id. A tag of that name is tag:{text[:80]}.")
    return int(text)


def _time(text: str) -> datetime:
    try:
        return parse_time(text)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(
            f"{text} is not a time. Write it as 2026-01-31 or 2026-01-31T09:30:00Z; a tag of that name is tag:{text}."
        ) from error
