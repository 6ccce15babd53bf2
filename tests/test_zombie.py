"""A run that is frozen, replaced and woken is refused wherever it was; nothing of it is written, the next is clean."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import rounds
import zombies

from headwater import lake as lakes
from headwater.domain.tables import TABLES
from headwater.lake import Lake
from headwater.storage.tables.read_progress import peek_progress

# Where a run may fall asleep: before and after it has read, claimed, staged, written and landed something.
POINTS = (
    "bronze.keyed",
    "bronze.staged",
    "bronze.published",
    "derive.quarantined",
    "derive.staged",
    "embed.staged",
    "index.upserted",
    "commit.proposed",
    "commit.written",
    "commit.landed",
)
SAMPLE = ("bronze.keyed", "derive.staged", "index.upserted", "commit.written")


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        rounds.put_round(made, rounds.make_media(tmp_path, 0), 0)
        made.run()
        rounds.put_round(made, rounds.make_media(tmp_path, 1), 1)
        yield made


@pytest.mark.parametrize("point", SAMPLE)
def test_a_frozen_run_that_was_replaced_writes_nothing_when_it_wakes(lake: Lake, tmp_path: Path, point: str) -> None:
    check(lake, tmp_path, point)


@pytest.mark.soak
@pytest.mark.parametrize("point", [*POINTS, *(f"commit.written:{number}" for number in range(2, 8))])
def test_a_frozen_run_is_harmless_wherever_it_fell_asleep(lake: Lake, tmp_path: Path, point: str) -> None:
    check(lake, tmp_path, point)


def check(lake: Lake, tmp_path: Path, point: str) -> None:
    zombie = zombies.freeze(lake, point)
    try:
        zombies.let_the_lease_run_out(lake)
        lake.run()
        replaced = rounds.contents(lake), positions(lake)
        zombie.send_signal(signal.SIGCONT)
        _, errors = zombie.communicate(timeout=zombies.PATIENCE_SECONDS)
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
    assert lake._components.index.count() == lake.table("embeddings").to_arrow().num_rows


def positions(lake: Lake) -> dict[str, tuple[int, object]]:
    found = {table.name: peek_progress(lake.settings, table) for table in TABLES}
    return {name: (told.next_seq, told.consumed) for name, told in found.items()}


def undisturbed(tmp_path: Path) -> object:
    """What three rounds come to where nobody slept."""
    directory = tmp_path / "undisturbed"
    rounds.use_cheap_models(directory)
    with lakes.init(directory) as other:
        for number in range(3):
            rounds.put_round(other, tmp_path / f"round-{number}", number)
        other.run()
        return rounds.contents(other)
