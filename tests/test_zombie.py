"""Who is frozen, replaced and woken is refused wherever it was; nothing of it is written, the next is clean."""

from collections.abc import Iterator
from pathlib import Path

import behaviour_memo
import pytest
import rounds
import zombies
from lakes import parts_of

from headwater import faults
from headwater import lake as lakes
from headwater.domain.tables import TABLES
from headwater.lake import Lake
from headwater.settings import FILE_NAME, Settings
from headwater.storage.tables.read_progress import read_progress

# By the first word of a point: who passes it. The others are passed by who is not replaced while it sleeps; what comes
# of them when they are killed is promised elsewhere (see test_fault_points.py).
RUN = ("work", "commit", "bronze", "quarantine", "derive", "embed", "index")
MAINTAIN = ("work", "maintain", "task")
MEMO = ("memo",)
# Points that are passed more than once are tried the later times too: in another table, or by another stage.
LATER = ("derive.staged:2", "derive.published:4", *(f"commit.written:{number}" for number in range(2, 8)))
SAMPLE = ("bronze.keyed", "derive.staged", "index.upserted", "commit.written")


def points_of(words: tuple[str, ...]) -> list[str]:
    return [point for point in faults.POINTS if point.partition(".")[0] in words]


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    use_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        rounds.put_round(made, rounds.make_media(tmp_path, 0), 0)
        made.run()
        rounds.put_round(made, rounds.make_media(tmp_path, 1), 1)
        yield made


@pytest.mark.parametrize("point", SAMPLE)
def test_a_frozen_run_that_was_replaced_writes_nothing_when_it_wakes(lake: Lake, tmp_path: Path, point: str) -> None:
    check(lake, tmp_path, point)


@pytest.mark.soak
@pytest.mark.parametrize("point", [*points_of(RUN), *LATER])
def test_a_frozen_run_is_harmless_wherever_it_fell_asleep(lake: Lake, tmp_path: Path, point: str) -> None:
    check(lake, tmp_path, point)


def check(lake: Lake, tmp_path: Path, point: str) -> None:
    zombie = zombies.freeze(lake, point)
    try:
        zombies.let_the_lease_run_out(lake)
        lake.run()
        replaced = rounds.contents(lake), positions(lake)
        errors = zombies.wake(zombie)
    finally:
        zombie.kill()
        zombie.wait()
    assert zombie.returncode == 4, errors
    assert "Traceback" not in errors
    assert (rounds.contents(lake), positions(lake)) == replaced, "nothing of it was written"
    assert not lake.pending()
    lake.run()
    rounds.put_round(lake, rounds.make_media(tmp_path, 2), 2)
    lake.run()
    assert (rounds.contents(lake)) == undisturbed(tmp_path)
    assert parts_of(lake).index.count() == lake.table("embeddings").to_arrow().num_rows


@pytest.mark.soak
@pytest.mark.parametrize("point", points_of(MAINTAIN))
def test_frozen_maintenance_that_was_replaced_changes_nothing_when_it_wakes(
    lake: Lake, tmp_path: Path, point: str
) -> None:
    for number in range(2, 6):
        lake.run()
        rounds.put_round(lake, rounds.make_media(tmp_path, number), number)
    lake.run()
    before = rounds.contents(lake), positions(lake)
    zombie = zombies.freeze(lake, point, "maintain")
    try:
        zombies.let_the_lease_run_out(lake, "maintain")
        lake.maintain()
        files = warehouse(lake)
        errors = zombies.wake(zombie)
    finally:
        zombie.kill()
        zombie.wait()
    assert zombie.returncode == 4, errors
    assert "Traceback" not in errors
    assert warehouse(lake) == files, "nothing of it was written"
    assert (rounds.contents(lake), positions(lake)) == before
    lake.maintain()
    lake.run()
    assert (rounds.contents(lake), positions(lake)) == before


@pytest.mark.soak
@pytest.mark.parametrize("point", points_of(MEMO))
def test_a_frozen_packing_of_the_memo_that_was_replaced_loses_no_answer_when_it_wakes(
    settings: Settings, point: str
) -> None:
    keys = behaviour_memo.checksums(1_000)
    for start in range(0, 1_000, 100):
        behaviour_memo.shelf(settings).put({key: {"text": key} for key in keys[start : start + 100]})
    with behaviour_memo.packing(settings, fault=f"{point}:1:stop") as zombie:
        zombies.wait_until_frozen(zombie)
        with behaviour_memo.packing(settings) as other:
            assert other.wait() == 0
        zombies.wake(zombie)
    with behaviour_memo.packing(settings) as next_one:
        assert next_one.wait() == 0
    assert behaviour_memo.shelf(settings).find(keys) == {key: {"text": key} for key in keys}


def warehouse(lake: Lake) -> set[Path]:
    return {path for path in (lake.settings.lake / "warehouse").rglob("*") if path.is_file()}


def use_models(directory: Path) -> None:
    """Those that cost nothing, but for the embedder: what it answers is remembered before it is written."""
    rounds.use_cheap_models(directory)
    file = directory / FILE_NAME
    file.write_text(file.read_text().replace('embed = "lexical"', 'embed = "paid_models:PaidEmbedder"'))


def positions(lake: Lake) -> dict[str, tuple[int, object]]:
    found = {table.name: read_progress(lake.settings, table) for table in TABLES}
    return {name: (told.next_seq, told.consumed) for name, told in found.items()}


def undisturbed(tmp_path: Path) -> object:
    """What three rounds come to where nobody slept."""
    directory = tmp_path / "undisturbed"
    use_models(directory)
    with lakes.init(directory) as other:
        for number in range(3):
            rounds.put_round(other, tmp_path / f"round-{number}", number)
        other.run()
        return rounds.contents(other)
