"""A lake as Python's callers meet it: closed it answers no more, and times are taken as people write them."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from lakes import small_lake

from headwater import lake as lakes
from headwater.clock import to_moment
from headwater.errors import InvalidRequest, spelled
from headwater.flow.derive.job_clock import JobClock
from headwater.flow.derive.source import Limits
from headwater.lake import Lake

ASKED: list[Callable[[Lake], object]] = [
    lambda lake: lake.search("refund"),
    lambda lake: lake.status(),
    lambda lake: lake.sql("SELECT 1"),
    lambda lake: lake.trace("e1"),
    lambda lake: lake.put_text("hello", customer="acme"),
    lambda lake: lake.table("events").to_arrow(),
    lambda lake: lake.models.list(),
    lambda lake: lake.quarantine(),
    lambda lake: lake.pending(),
    lambda lake: lake.spark,
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_lake(tmp_path_factory.mktemp("small") / "lake")


def test_a_closed_lake_says_that_it_is_closed(directory: Path) -> None:
    with lakes.open(directory) as lake:
        lake.status()
        lake.search("refund")
    models, table = lake.models, lake.table
    for ask in (*ASKED, lambda _: models.list(), lambda _: table("events").to_arrow()):
        with pytest.raises(InvalidRequest, match="This lake is closed"):
            ask(lake)
    lake.close()


@pytest.mark.parametrize("given", ["2024-03-02", "2024-03-02T00:00:00Z", date(2024, 3, 2), datetime(2024, 3, 2)])  # noqa: DTZ001
def test_a_time_is_taken_as_it_is_written(given: str | date) -> None:
    assert to_moment(given) == datetime(2024, 3, 2, tzinfo=UTC)


def test_times_may_be_texts_wherever_a_lake_takes_them(directory: Path) -> None:
    with lakes.open(directory) as lake:
        assert lake.search("refund", since="2024-03-02", until="2999-01-01").hits
        assert not lake.search("refund", since="2999-01-01").hits
        put = lake.put_text("late", customer="acme", at="2024-03-02T10:00:00+01:00", id="late-1")
        assert put.status == "stored"
        assert lake.show("events", as_of=date.today().isoformat() + "T23:59:59.999Z")["rows"]  # noqa: DTZ011
        for wrong in ("yesterday", 5):
            with pytest.raises(InvalidRequest, match="is not a time"):
                lake.search("refund", since=wrong)  # type: ignore[arg-type]


def test_the_first_bytes_of_a_file_are_told_as_a_person_reads_them() -> None:
    assert [spelled(each) for each in (b"HURF", b"\x00\x01", b"")] == ['"HURF"', "00 01", "nothing"]


def test_a_limit_is_told_as_it_is_set_and_what_was_earned_apart() -> None:
    clock = JobClock(Limits.from_settings({"limits.step_seconds": 30.0}), None, 0.0, 0.0)
    clock.note({"allow": 30.0}, 1.0)
    assert clock.trouble()[1].startswith("No answer within limits.step_seconds, 30 s, and 30 s that its length")
