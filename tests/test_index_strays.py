"""Who slept while it wrote to the index, which knows no lease, leaves it as the table is when it wakes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lakes import parts_of
from pyspark.sql import functions as F
from sample_rows import rows

from headwater import lake as lakes
from headwater.clock import utc_now
from headwater.components import Components
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.tables import EMBEDDINGS
from headwater.errors import Conflict
from headwater.flow.index import index_next
from headwater.lake import Lake
from headwater.settings import Settings
from headwater.storage.index.lance_index import LanceIndex
from headwater.storage.index.vector_index import open_index
from headwater.storage.ledger.hold_lease import Held
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import change_book
from headwater.storage.tables.rewrite_files import remove_rows
from headwater.storage.tables.writer import TableWriter
from headwater.upkeep.models.retire import DropVectors, Retire, RetirePlan

KEPT, GONE = "aaaa000011112222", "bbbb000011112222"


class Drowsy(LanceIndex):
    """Falls asleep in the middle of a change, and `meanwhile` happens."""

    def __init__(self, settings: Settings, meanwhile: Callable[[], object]) -> None:
        super().__init__(settings.text("index.uri"), settings)
        self._meanwhile = meanwhile

    def upsert(self, given: pa.Table) -> None:
        self._sleep()
        super().upsert(given)

    def drop(self, fingerprint: str) -> None:
        self._sleep()
        super().drop(fingerprint)

    def _sleep(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()


def vectors(*fingerprints: str) -> pa.Table:
    given = [
        {"chunk_id": f"{fingerprint}-{number}", "vector": [1.0, float(number)], "fingerprint": fingerprint,
         "object_id": f"o{number}", "customer": "acme", "event_id": f"e{number}"}
        for fingerprint in fingerprints for number in range(3)
    ]  # fmt: skip
    return rows(EMBEDDINGS, given).select(EMBEDDINGS.columns)


def take_over(ledger: Ledger) -> Held:
    """As another process does when the holder has been silent for long."""
    with ledger._database.transaction() as run:
        run("update leases set renewed_at = '2020-01-01T00:00:00Z', started = 'another' where name = 'run'")
    return hold(ledger)


def hold(ledger: Ledger) -> Held:
    return Held(ledger, ledger.acquire_lease("run", "test", 60.0, utc_now()))


def test_vectors_that_were_removed_while_their_writer_slept_are_not_found_when_it_wakes(
    engine: None, tmp_path: Path
) -> None:
    with lakes.init(tmp_path / "lake") as lake:
        parts, writer = parts_of(lake), TableWriter(lake.spark, lake.settings)
        writer.publish(EMBEDDINGS, vectors(KEPT, GONE), {}, stage="test")

        def retire() -> None:
            held = take_over(parts.ledger)
            remove_rows(writer, EMBEDDINGS, F.col("fingerprint") == GONE)
            follow(lake, writer, held)

        asleep = hold(parts.ledger).ledger
        with pytest.raises(Conflict, match="lost to another process"):
            index_next(writer, asleep, Drowsy(lake.settings, retire), batch_rows=100)
        found = lake.table("embeddings", all_models=True).to_arrow()["chunk_id"].to_pylist()
        assert len(found) == 3
        gone = [f"{GONE}-{number}" for number in range(3)]
        assert parts.index.present([*found, *gone]) == set(found)
        assert parts.index.count() == 3 and parts.index.position() == 6


def test_a_model_that_came_back_while_its_retirement_slept_is_brought_into_the_index_again(
    engine: None, tmp_path: Path
) -> None:
    with lakes.init(tmp_path / "lake") as lake:
        parts, writer = parts_of(lake), TableWriter(lake.spark, lake.settings)
        writer.publish(EMBEDDINGS, vectors(KEPT, GONE), {}, stage="test")
        change_book(parts.ledger, lambda _: ModelBook((known(State.RETIRING),)))
        slept = hold(parts.ledger)
        current: dict[str, Any] = {}

        def bring_back() -> None:
            current["held"] = take_over(parts.ledger)
            change_book(parts.ledger, lambda _: ModelBook((known(State.STANDBY),)))
            follow(lake, writer, current["held"])

        drowsy = Components(lake.settings)
        drowsy.__dict__["index"] = Drowsy(lake.settings, bring_back)
        plan = RetirePlan("embed", "gone 1", GONE, State.STANDBY.value, {}, 3)
        Retire(drowsy, plan).do(DropVectors(about="index"), slept)
        follow(lake, writer, current["held"])
        found = lake.table("embeddings", all_models=True).to_arrow()["chunk_id"].to_pylist()
        assert parts.index.present(found) == set(found) and parts.index.count() == len(found) == 6


@pytest.mark.parametrize("by", ["wiped", "set back"])
def test_an_index_that_was_wiped_or_set_back_while_it_was_written_to_gets_all_that_it_lacks(
    engine: None, tmp_path: Path, by: str
) -> None:
    with lakes.init(tmp_path / "lake") as lake:
        parts, writer = parts_of(lake), TableWriter(lake.spark, lake.settings)
        writer.publish(EMBEDDINGS, vectors(KEPT), {}, stage="test")
        held = hold(parts.ledger)
        follow(lake, writer, held)
        writer.publish(EMBEDDINGS, vectors(GONE), {}, stage="test")

        def lose() -> None:
            other = open_index(lake.settings)
            if by == "set back":
                other.drop(KEPT)
                other.set_position(0)
            else:
                other.delete(None)

        index_next(writer, held.ledger, Drowsy(lake.settings, lose), batch_rows=100)
        follow(lake, writer, held)
        found = lake.table("embeddings", all_models=True).to_arrow()["chunk_id"].to_pylist()
        assert parts.index.present(found) == set(found) and parts.index.count() == len(found) == 6


def test_an_index_whose_emptying_was_killed_half_way_keeps_nothing_of_what_the_table_has_no_more(
    engine: None, tmp_path: Path
) -> None:
    with lakes.init(tmp_path / "lake") as lake:
        parts, writer = parts_of(lake), TableWriter(lake.spark, lake.settings)
        writer.publish(EMBEDDINGS, vectors(KEPT), {}, stage="test")
        then = snapshot_of(lake)
        writer.publish(EMBEDDINGS, vectors(GONE), {}, stage="test")
        held = hold(parts.ledger)
        follow(lake, writer, held)
        lake.spark.sql(f"CALL lake.system.rollback_to_snapshot('{EMBEDDINGS.name}', {then})").collect()
        (Path(lake.settings.text("index.uri")) / "position.json").unlink()  # which goes first
        follow(lake, writer, held)
        assert parts.index.present([f"{GONE}-0", f"{KEPT}-0"]) == {f"{KEPT}-0"}
        assert parts.index.count() == 3


def snapshot_of(lake: Lake) -> int:
    current = parts_of(lake).catalog.load_table(EMBEDDINGS.name).current_snapshot()
    assert current is not None
    return current.snapshot_id


def known(state: State) -> KnownModel:
    return KnownModel("embed", "gone", "gone 1", GONE, state, "2026-03-01T12:00:00Z")


def follow(lake: Lake, writer: TableWriter, held: Held) -> None:
    index = open_index(lake.settings)
    while index_next(writer, held.ledger, index, batch_rows=100):
        pass
