"""The one place that reads the wall clock, so that tests can move time."""

import os
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import TypeAlias

from headwater.errors import InvalidRequest

# A time as Python's callers write it: "2026-01-31", "2026-01-31T09:30:00Z", a datetime or a date.
Moment: TypeAlias = datetime | date | str

Clock = Callable[[], datetime]

# Tests set a process's clock ahead or back by it, as a fail-over to another machine does.
skew = timedelta(seconds=float(os.environ.get("HEADWATER_CLOCK_SKEW_SECONDS", "0")))


def utc_now() -> datetime:
    return datetime.now(UTC) + skew


def parse_time(text: str) -> datetime:
    """ISO 8601; a time without a zone is taken as UTC."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def to_moment(value: Moment | None) -> datetime | None:
    """A time in any of its spellings, in UTC; InvalidRequest where it is none."""
    if value is None:
        return None
    try:
        return parse_time(value if isinstance(value, str) else value.isoformat())
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise InvalidRequest(f"{value} is not a time. Write it as 2026-01-31 or 2026-01-31T09:30:00Z.") from None


def to_text(moment: datetime) -> str:
    """UTC with milliseconds, the form that every log line and JSON answer uses."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
