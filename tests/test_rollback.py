"""A table rolled back by Iceberg's own procedure: it is noticed, what is gone comes again, nothing is there twice."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import rounds

from headwater import lake as lakes
from headwater.domain.tables import EMBEDDINGS, EVENTS, MESSAGES, TABLES, TRANSCRIPTS, Table
from headwater.lake import Lake
from headwater.storage.tables.read_progress import peek_progress


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        yield made


def snapshot_of(lake: Lake, table: Table) -> int:
    current = lake._components.catalog.load_table(table.name).current_snapshot()
    assert current is not None
    return current.snapshot_id


def roll_back(lake: Lake, table: Table, snapshot: int) -> None:
    lake.spark.sql(f"CALL lake.system.rollback_to_snapshot('{table.name}', {snapshot})").collect()


@pytest.mark.parametrize("table", [EVENTS, MESSAGES, TRANSCRIPTS, EMBEDDINGS], ids=lambda table: table.short_name)
def test_what_a_rollback_took_away_comes_again_and_once(lake: Lake, tmp_path: Path, table: Table) -> None:
    rounds.put_round(lake, rounds.make_media(tmp_path, 0), 0)
    lake.run()
    then = snapshot_of(lake, table)
    rounds.put_round(lake, rounds.make_media(tmp_path, 1), 1)
    lake.run()
    before, numbers = rounds.contents(lake), peek_progress(lake.settings, table).next_seq
    index = lake._components.index.count()
    roll_back(lake, table, then)
    assert lake.pending(), "it is noticed without a JVM"
    assert peek_progress(lake.settings, table).generation == 1
    lake.run()
    assert rounds.contents(lake) == before
    rounds.check_raw_is_counted(lake)
    assert peek_progress(lake.settings, table).next_seq > numbers, "no number is given twice"
    for other in TABLES:
        keys = lake.table(other.name, all_models=True).to_arrow().select(list(other.key)).to_pylist()
        assert set(Counter(tuple(row.values()) for row in keys).values()) <= {1}, other.name
    assert lake._components.index.count() == index
    assert not lake.pending()
    rounds.put_round(lake, rounds.make_media(tmp_path, 2), 2)
    lake.run()
    assert len(rounds.contents(lake)["silver.messages"]) == 9


def test_events_that_are_sent_again_after_a_rollback_are_no_duplicates(lake: Lake) -> None:
    for number in range(3):
        lake.put_text(f"line {number}", customer="acme", id=f"m{number}")
    lake.run()
    then = snapshot_of(lake, EVENTS)
    lake.put_text("line 3", customer="acme", id="m3")
    lake.run()
    roll_back(lake, EVENTS, then)
    lake.put_text("line 3", customer="acme", id="m3")
    lake.run()
    assert sorted(row["event_id"] for row in rounds.contents(lake)["bronze.events"]) == ["m0", "m1", "m2", "m3"]
    assert lake.status()["duplicates"] == 1
    assert {hit.entry.text for hit in lake.search("line 3").hits} >= {"line 3"}
