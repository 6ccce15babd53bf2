"""A line that is no event is known by its place and by what it says: nobody else's dismissal is its own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import rounds
from lakes import parts_of

from headwater import lake as lakes
from headwater.lake import Lake


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        yield made


def fill_log_anew(lake: Lake, line: str) -> None:
    shutil.rmtree(lake.settings.text("log.uri"), ignore_errors=True)
    parts_of(lake).log.publish_raw([line])  # type: ignore[attr-defined]


def test_a_bad_line_in_a_log_that_was_made_anew_is_not_dismissed_with_the_one_that_stood_there(lake: Lake) -> None:
    fill_log_anew(lake, "not an event")
    lake.run()
    (first,) = lake.quarantine()["rows"]
    lake.dismiss(first["event_id"], because="a test of the producer's", by="Ada")
    assert lake.quarantine()["rows"] == []
    fill_log_anew(lake, "no event either")
    lake.run()
    (second,) = lake.quarantine()["rows"]
    assert second["payload"] == "no event either"
    # Neither the partition nor the offset differs.
    assert first["event_id"].rpartition(":")[0] == second["event_id"].rpartition(":")[0] != ""
