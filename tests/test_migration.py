"""A lake moved to other places is the same lake: rows, snapshots, tags, objects, keys; killed half-way it goes on."""

import io
import json
import signal
import sqlite3
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import forked
import pytest
from lakes import CALL, CALL_BYTES, SCREEN, parts_of, small_lake
from sample_rows import NOON, append, rows

from headwater import faults
from headwater import lake as lakes
from headwater.cli.main import main
from headwater.components import Components
from headwater.domain.progress import CONSUMED, Progress
from headwater.domain.tables import EVENTS, TABLES, TRANSCRIPTS
from headwater.errors import Conflict
from headwater.settings import FILE_NAME, load
from headwater.storage.ledger.ledger import open_ledger
from headwater.storage.ledger.plans import unfinished_plans
from headwater.storage.memo.memo import open_memo
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.row_hash import hash_refs
from headwater.upkeep.migration.new_settings import BEFORE, merge, to_toml

KILLS = ("object", "file", "registered", "noted:3", "ledger", "verified", "moved", "switched")
SHELF, REMEMBERED = ("transcribe", "print"), {"ab" * 32: {"text": "hello"}}


def busy_lake(directory: Path) -> Path:
    """As `small_lake`, with history, a tag, a branch, keys, a memo, and a log that was read to its end."""
    small_lake(directory)
    with lakes.open(directory) as lake:
        parts = parts_of(lake)
        table = parts.catalog.load_table(TRANSCRIPTS.name)
        table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, "before").commit()
        append(table.refresh(), rows(TRANSCRIPTS, [{"object_id": CALL, "text": "and then it arrived"}], first_seq=1))
        table.refresh().manage_snapshots().create_branch(table.metadata.current_snapshot_id, "trial").commit()
        for number in range(3):
            lake.put_text(f"line {number}", customer="acme", id=f"m{number}", at=NOON)
        read_to_end(lake)
        parts.ledger.claim_first("event", [("m0", "00", 0, 0), ("m1", "11", 0, 1), ("m2", "22", 0, 2)])
        parts.ledger.finish_run(parts.ledger.start_run("run", NOON), "done", NOON)
        open_memo(lake.settings).shelf(*SHELF).put(REMEMBERED)
    return directory


def read_to_end(lake: lakes.Lake) -> None:
    ends = {str(partition): end for partition, end in parts_of(lake).log.end().items()}
    consumed = json.dumps({"log": ends})
    catalogs.set_properties_if(parts_of(lake).catalog, EVENTS.name, {}, {CONSUMED: consumed})


def elsewhere(directory: Path) -> Path:
    """Settings that put every part into another directory."""
    directory.mkdir(parents=True, exist_ok=True)
    names = {"raw": "raw", "log": "log", "index": "index", "memo": "memo"}
    lines = [f'[{section}]\nuri = "{directory}/{name}"' for section, name in names.items()]
    lines.append(f'[catalog]\nuri = "sqlite:///{directory}/catalog.db"\nwarehouse = "{directory}/warehouse"')
    lines.append(f'[ledger]\nuri = "sqlite:///{directory}/ledger.db"')
    file = directory / "new.toml"
    file.write_text("\n".join(lines))
    return file


def state(lake: Path) -> dict[str, Any]:
    """All that must be the same on both sides."""
    parts = Components(load(lake))
    found: dict[str, Any] = {}
    for each in TABLES:
        table = parts.catalog.load_table(each.name)
        found[each.name] = (
            hash_refs(table),
            table.metadata.refs,
            [snapshot.snapshot_id for snapshot in table.snapshots()],
            table.schema(),
            Progress.from_properties(table.properties).next_seq,
        )
    found["raw"] = {(each.path, each.size) for each in parts.raw_store.list()}
    return found


def files_of(directory: Path) -> dict[str, int]:
    # SQLite's own side files come and go with whoever reads.
    return {
        str(path): path.stat().st_mtime_ns
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.endswith(("-wal", "-shm", ".lock"))
    }


class Done(NamedTuple):
    code: int
    out: str


def migrate(lake: Path, file: Path, *options: str) -> Done:
    out = io.StringIO()
    with redirect_stdout(out):
        code = main(["migrate", "--to", str(file), "--lake", str(lake), "--json", *options])
    return Done(code, out.getvalue())


def kill_while_migrating(forks: forked.Forks, lake: Path, file: Path, point: str) -> None:
    killed = forks.call("--lake", lake, "migrate", "--to", file, fault=f"migrate.{point}")
    assert killed.code == -signal.SIGKILL, f"{point}: {killed}"


def test_everything_arrives_and_the_lake_opens_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake, target = busy_lake(tmp_path / "lake"), tmp_path / "other"
    before, old_ledger = state(lake), load(lake).text("ledger.uri")
    capsys.readouterr()
    assert main(["migrate", "--to", str(elsewhere(target)), "--lake", str(lake), "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert f"{SCREEN} is copied as it is, but does not match its checksum" in err
    assert told["applied"] and {row["ref"] for row in told["refs"] if row["table"] == TRANSCRIPTS.name} == {
        "main",
        "before",
        "trial",
    }
    for name in ("raw", "log", "warehouse", "memo", "ledger.db", "catalog.db"):
        (lake / name).rename(lake / f"gone-{name}")  # nothing of it may be needed any more
    assert state(lake) == before
    with lakes.open(lake) as moved:
        parts = parts_of(moved)
        assert b"".join(moved.get("e1")) == CALL_BYTES
        assert open_memo(moved.settings).shelf(*SHELF).find(REMEMBERED) == REMEMBERED
        assert moved.status()["log"]["lag"] == 0
        assert moved.pending().index == 3  # the index is a view: the next run rebuilds it
        assert [run.kind for run in parts.ledger.runs(9)][-1] == "run"
    (lake / "gone-ledger.db").rename(lake / "ledger.db")
    ledger = open_ledger(old_ledger)
    assert ledger.fact("moved_to")
    assert [(run.kind, run.outcome) for run in ledger.runs(1)] == [("migrate", "done")]


def test_what_was_seen_stays_seen_though_the_new_log_counts_from_its_beginning(tmp_path: Path) -> None:
    lake = busy_lake(tmp_path / "lake")
    assert migrate(lake, elsewhere(tmp_path / "other")).code == 0
    with lakes.open(lake) as moved:
        parts = parts_of(moved)
        assert Progress.from_properties(parts.catalog.load_table(EVENTS.name).properties).offsets == {0: 0}
        assert parts.ledger.forget_claims_from(0, 0) == 0
        firsts = parts.ledger.claim_first("event", [("m1", "11", 0, 0), ("m9", "99", 0, 1)])
        assert firsts["m1"] != ("11", 0, 0), "an event that comes again must be a duplicate"
        assert firsts["m9"] == ("99", 0, 1)
        moved.put_text("new", customer="acme")
        assert moved.pending().bronze == 1


@pytest.mark.timeout(300)
def test_killed_anywhere_a_migration_goes_on_and_ends_equal(tmp_path: Path, forks: forked.Forks) -> None:
    assert {f"migrate.{kill.partition(':')[0]}" for kill in KILLS} == {p for p in faults.POINTS if "migrate" in p}
    lake, file = busy_lake(tmp_path / "lake"), elsewhere(tmp_path / "other")
    before = state(lake)
    for kill in KILLS:
        kill_while_migrating(forks, lake, file, kill)
        if kill == "verified":
            with lakes.open(lake) as still:  # until the switch the lake is where it was, and usable
                assert still.table("transcripts").to_arrow().num_rows == 2
    assert (lake / BEFORE).is_file()
    assert json.loads(migrate(lake, file).out)["parts"] == [], "it had been switched"
    assert state(lake) == before
    lakes.open(lake).close()


@pytest.mark.timeout(300)
def test_killed_at_every_step_a_migration_goes_on_and_ends_equal(tmp_path: Path, forks: forked.Forks) -> None:
    lake, file = busy_lake(tmp_path / "lake"), elsewhere(tmp_path / "other")
    before, command = state(lake), ("--lake", lake, "migrate", "--to", file)
    steps = len(json.loads(forks.call(*command, "--dry-run", "--json").out)["steps"])
    assert steps == 6 + len(TABLES)
    # Gone on with, each step is taken again; the last one is the switch, after which there is nothing to do.
    for number in range(1, steps + 1):
        assert forks.call(*command, fault=f"task.done:{number}").code == -signal.SIGKILL, number
    done = forks.call(*command, "--json")
    assert (done.code, json.loads(done.out)["parts"]) == (0, []), done.err
    assert state(lake) == before
    with lakes.open(lake) as moved:
        tried = [run.outcome for run in parts_of(moved).ledger.runs(99) if run.kind == "migrate"]
    assert tried == ["done", *[None] * (steps - 1)], "those that were killed are not told as done"
    # The ledger that it left cannot know that it arrived; there it is told when a lake comes back.
    assert forks.call("--lake", lake, "migrate", "--to", elsewhere(lake)).code == 0
    for where in ("lake", "other"):
        assert unfinished_plans(open_ledger(f"sqlite:///{tmp_path}/{where}/ledger.db")) == []


def test_a_lake_that_changed_after_a_kill_is_moved_as_it_is_now(tmp_path: Path, forks: forked.Forks) -> None:
    lake, file = busy_lake(tmp_path / "lake"), elsewhere(tmp_path / "other")
    kill_while_migrating(forks, lake, file, "verified")
    with lakes.open(lake) as still:
        table = parts_of(still).catalog.load_table(TRANSCRIPTS.name)
        append(table, rows(TRANSCRIPTS, [{"object_id": CALL, "text": "late"}], first_seq=2))
        parts_of(still).raw_store.put_bytes("audio/acme/2026-03-01/late.wav", b"late", "audio/wav")
    before = state(lake)
    assert migrate(lake, file).code == 0
    assert state(lake) == before
    assert len(before["raw"]) == 3


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake, target = busy_lake(tmp_path / "lake"), tmp_path / "other"
    file = elsewhere(target)
    before = files_of(tmp_path)
    assert main(["migrate", "--to", str(file), "--lake", str(lake), "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert files_of(tmp_path) == before
    assert plan["raw"] == {"objects": 2, "bytes": len(CALL_BYTES) + 3}
    transcripts = next(each for each in plan["tables"] if each["table"] == TRANSCRIPTS.name)
    assert (transcripts["rows"], transcripts["snapshots"], transcripts["refs"]) == (2, 2, ["before", "main", "trial"])
    # Of events, and of the ids that were told at put.
    assert (plan["claims"], plan["unread"], plan["applied"]) == (6, 0, False)


def test_unread_events_are_not_left_behind(tmp_path: Path) -> None:
    lake, file = busy_lake(tmp_path / "lake"), elsewhere(tmp_path / "other")
    with lakes.open(lake) as opened:
        opened.put_text("unread", customer="acme")
    done = migrate(lake, file)
    assert done.code == Conflict.exit_code
    assert "headwater run --once" in done.out
    with lakes.open(lake) as opened:
        read_to_end(opened)
    assert migrate(lake, file).code == 0


def test_an_opener_of_the_old_place_is_told_where_the_lake_went(tmp_path: Path) -> None:
    lake = busy_lake(tmp_path / "lake")
    assert migrate(lake, elsewhere(tmp_path / "other")).code == 0
    (lake / FILE_NAME).write_bytes((lake / BEFORE).read_bytes())
    with pytest.raises(Conflict, match=f"has moved to .*{tmp_path / 'other'}"):
        lakes.open(lake)
    assert migrate(lake, elsewhere(tmp_path / "third")).code == Conflict.exit_code


def test_a_target_that_holds_another_lake_is_refused(tmp_path: Path) -> None:
    lake, other = busy_lake(tmp_path / "lake"), small_lake(tmp_path / "other")
    before = state(other)
    done = migrate(lake, elsewhere(tmp_path / "other"))
    assert done.code == Conflict.exit_code and "another lake" in done.out
    assert state(other) == before
    lakes.open(lake).close()


def test_a_lake_can_move_back(tmp_path: Path) -> None:
    lake, file = busy_lake(tmp_path / "lake"), elsewhere(tmp_path / "other")
    before = state(lake)
    assert migrate(lake, file).code == 0
    back = elsewhere(lake)
    done = migrate(lake, back)
    assert done.code == 0, done.out
    with sqlite3.connect(tmp_path / "other" / "ledger.db") as left:
        assert left.execute("select count(*) from lake where name = 'moved_to'").fetchone() == (1,)
    assert state(lake) == before
    lakes.open(lake).close()


def test_one_part_moves_alone_and_the_other_settings_stay(tmp_path: Path) -> None:
    lake = busy_lake(tmp_path / "lake")
    (lake / FILE_NAME).write_text(
        '[models]\nembed = "lexical"\n[model."whisper v1.5"]\nkind = "faster-whisper"\nbeam_size = 3\n'
        '[spark.conf]\n"spark.ui.port" = "4050"\n'
    )
    before = state(lake)
    for name in ("raw", "log"):
        file = tmp_path / f"{name}.toml"
        file.write_text(f'[{name}]\nuri = "{tmp_path}/new-{name}"\n')
        assert migrate(lake, file).code == 0
    settings = load(lake)
    assert settings.text("raw.uri") == f"{tmp_path}/new-raw"
    assert settings.chosen["models.embed"].origin == FILE_NAME
    assert dict(settings.section("spark.conf")) == {"spark.ui.port": "4050"}
    assert settings.models == {"whisper v1.5": {"kind": "faster-whisper", "beam_size": 3}}
    assert state(lake) == before
    with lakes.open(lake) as moved:
        assert moved.pending().bronze == 0
        assert parts_of(moved).ledger.forget_claims_from(0, 0) == 0


def test_settings_survive_being_written_as_toml(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    text = '[s3]\nsecret_key = "a\\"b\\\\c é"\npath_style = false\n[index]\nrecall_target = 0.9\n'
    (lake / FILE_NAME).write_text(text + '[kafka.conf]\n"security.protocol" = "SSL"\n')
    other = tmp_path / "other.toml"
    other.write_text("[spark]\nmemory_mb = 2048\n")
    document = merge(lake, other)
    other.write_text(to_toml(document))
    assert merge(lake, other) == document
    assert document["s3"]["secret_key"] == 'a"b\\c é'
