"""A switch is whole or taken back: refused, failed or killed, the lake is open where it was and can still move."""

from pathlib import Path

import forked
import pytest
from lakes import parts_of, small_lake
from test_migration import busy_lake, elsewhere, kill_while_migrating, migrate, read_to_end, state

from headwater import lake as lakes
from headwater.components import Components
from headwater.domain.progress import Progress
from headwater.domain.tables import EVENTS
from headwater.errors import Conflict, Unavailable
from headwater.flow.land_text import land_text
from headwater.settings import FILE_NAME, load
from headwater.upkeep.format import FORMAT
from headwater.upkeep.migration.migrate import migrate as move
from headwater.upkeep.migration.new_settings import BEFORE, merge, settings_of


def some_parts(directory: Path, *names: str) -> Path:
    """Settings that put these parts alone into another directory."""
    directory.mkdir(parents=True, exist_ok=True)
    uris = {"ledger": f"sqlite:///{directory}/ledger.db"}
    lines = [f'[{name}]\nuri = "{uris.get(name, directory / name)}"' for name in names]
    file = directory / "new.toml"
    file.write_text("\n".join(lines))
    return file


def offsets(lake: Path) -> dict[int, int]:
    table = Components(load(lake)).catalog.load_table(EVENTS.name)
    return Progress.from_properties(table.properties).offsets


def test_a_target_that_does_not_answer_is_refused_before_the_lake_is_marked(tmp_path: Path) -> None:
    lake, file = busy_lake(tmp_path / "lake"), some_parts(tmp_path / "other", "ledger", "log")
    (tmp_path / "other" / "log").write_text("a file, where a directory is to be made")
    assert migrate(lake, file).code == Unavailable.exit_code
    with lakes.open(lake) as still:
        ledger = parts_of(still).ledger
        assert ledger.fact("moved_to") is None and ledger.fact("migration") is None
        assert ledger.unfinished("migrate") == []


def test_a_switch_that_fails_gives_the_lake_back(tmp_path: Path) -> None:
    lake, file = busy_lake(tmp_path / "lake"), some_parts(tmp_path / "other", "ledger", "log")
    (lake / BEFORE).mkdir()  # the old settings cannot be kept
    assert migrate(lake, file).code == Unavailable.exit_code
    assert offsets(lake) == {0: 3}
    lakes.open(lake).close()
    (lake / BEFORE).rmdir()
    assert migrate(lake, file).code == 0
    assert offsets(lake) == {0: 0}


@pytest.mark.timeout(180)
def test_a_ledger_that_moves_alone_is_moved_again_after_a_kill_or_stays(tmp_path: Path, forks: forked.Forks) -> None:
    lake, file = busy_lake(tmp_path / "lake"), some_parts(tmp_path / "other", "ledger")
    kill_while_migrating(forks, lake, file, "moved")
    with pytest.raises(Conflict, match="has moved"):
        lakes.open(lake)
    assert migrate(lake, lake / FILE_NAME).code == 0, "whoever thinks better of it says so by the lake's own settings"
    lakes.open(lake).close()
    kill_while_migrating(forks, lake, file, "moved")
    assert migrate(lake, some_parts(tmp_path / "third", "ledger")).code == 0
    with lakes.open(lake) as moved:
        assert moved.settings.text("ledger.uri") == f"sqlite:///{tmp_path}/third/ledger.db"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("parts", [("ledger", "log"), ("log",)])
def test_killed_before_or_after_positions_are_set_no_event_is_read_twice(
    tmp_path: Path, forks: forked.Forks, parts: tuple[str, ...]
) -> None:
    lake, file = busy_lake(tmp_path / "lake"), some_parts(tmp_path / "other", *parts)
    source = Components(load(lake))
    before = state(lake)
    kill_while_migrating(forks, lake, file, "moved")
    assert offsets(lake) == {0: 3}
    kill_while_migrating(forks, lake, file, "moved:2")
    assert offsets(lake) == {0: 0}, "the tables stay and already speak of the new log"
    land_text(source.log, "late", "acme", at=source.clock(), event_id="late")
    done = migrate(lake, file)
    assert done.code == Conflict.exit_code and "1 events in the log have not been read" in done.out
    assert offsets(lake) == {0: 3}, "so that the advised run reads the late event alone"
    with lakes.open(lake) as still:
        assert parts_of(still).ledger.fact("log.identity") in {None, source.log.identity()}
        read_to_end(still)
    assert migrate(lake, file).code == 0
    assert offsets(lake) == {0: 0}
    assert state(lake) == before
    with lakes.open(lake) as moved:
        assert parts_of(moved).ledger.forget_claims_from(0, 0) == 0


def test_what_a_kill_right_after_the_switch_left_noted_is_not_taken_back(tmp_path: Path, forks: forked.Forks) -> None:
    lake = busy_lake(tmp_path / "lake")
    kill_while_migrating(forks, lake, some_parts(tmp_path / "other", "log"), "switched")
    assert load(lake).text("log.uri") == f"{tmp_path}/other/log"
    assert migrate(lake, some_parts(tmp_path / "third", "raw")).code == 0
    assert offsets(lake) == {0: 0}


def test_what_is_put_while_tables_are_compared_arrives_too(tmp_path: Path) -> None:
    lake, target = busy_lake(tmp_path / "lake"), tmp_path / "other"
    file = elsewhere(target)
    file.write_text(file.read_text().replace(f"{target}/log", f"{lake}/log"))
    source, document = Components(load(lake)), merge(lake, file)
    late = "audio/acme/2026-03-01/late.wav"

    def put_late(told: str) -> None:
        if told == f"{EVENTS.name} verified":
            source.raw_store.put_bytes(late, b"late", "audio/wav")

    move(source, Components(settings_of(lake, document, {})), document, put_late)
    with lakes.open(lake) as moved:
        assert b"".join(parts_of(moved).raw_store.chunks(late)) == b"late"


def test_an_index_that_was_used_before_is_emptied(tmp_path: Path) -> None:
    lake, other = busy_lake(tmp_path / "lake"), small_lake(tmp_path / "other")
    with lakes.open(other) as used:
        parts_of(used).index.set_position(99)
    file = some_parts(other, "index")
    assert migrate(lake, file).code == 0
    with lakes.open(lake) as moved:
        index = parts_of(moved).index
        assert (index.position(), index.count(), moved.pending().index) == (0, 0, 3)
        assert index.present(["c" * 24]) == set()


def test_an_index_that_stays_keeps_its_entries(tmp_path: Path) -> None:
    lake = busy_lake(tmp_path / "lake")
    assert migrate(lake, some_parts(tmp_path / "other", "raw")).code == 0
    with lakes.open(lake) as moved:
        assert moved.pending().index == 0 and parts_of(moved).index.count() == 3


def test_a_migration_is_done_in_the_ledger_that_it_led_to(tmp_path: Path, forks: forked.Forks) -> None:
    lake, file = busy_lake(tmp_path / "lake"), some_parts(tmp_path / "other", "ledger")
    kill_while_migrating(forks, lake, file, "switched")
    with lakes.open(lake) as moved:
        assert [(run.kind, run.outcome) for run in parts_of(moved).ledger.runs(2)] == [
            ("migrate", "done"),
            ("run", "done"),
        ]


@pytest.mark.parametrize(("version", "says"), [(FORMAT - 1, "headwater upgrade"), (FORMAT + 1, "newer Headwater")])
def test_a_lake_of_another_format_is_not_moved(tmp_path: Path, version: int, says: str) -> None:
    lake, file = small_lake(tmp_path / "lake"), some_parts(tmp_path / "other", "ledger")
    ledger = Components(load(lake)).ledger
    ledger.set_fact("format", str(version))
    done = migrate(lake, file)
    assert done.code == Conflict.exit_code and says in done.out
    assert not (tmp_path / "other" / "ledger.db").exists()
    assert ledger.fact("format") == str(version)
