"""A lake moved from one machine's files to Kafka, S3 and Postgres is the same lake, and goes on there."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rounds
from lakes import parts_of

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.components import Components
from headwater.domain.progress import Progress
from headwater.domain.tables import TABLES, TRANSCRIPTS
from headwater.errors import Conflict, InvalidRequest
from headwater.settings import FILE_NAME, Settings, load
from headwater.storage.tables.row_hash import hash_refs
from headwater.upkeep.migration.new_settings import to_toml

# One in each part that is copied, and one in the switch.
KILLS = ("object:3", "file:2", "registered:3", "ledger", "moved")


def settings_file(settings: Settings, file: Path) -> Path:
    """What the stack chose, as a user would write it."""
    document: dict[str, dict[str, Any]] = {}
    for name, chosen in settings.chosen.items():
        if chosen.origin != "default":
            section, _, key = name.partition(".")
            document.setdefault(section, {})[key] = chosen.value
    file.write_text(to_toml(document), encoding="utf-8")
    return file


def lake_with_history(lake: Path, media: Path) -> None:
    rounds.use_cheap_models(lake)
    with lakes.init(lake) as opened:
        for number in range(2):
            rounds.put_round(opened, rounds.make_media(media, number), number)
            opened.run()
            if number == 0:
                table = parts_of(opened).catalog.load_table(TRANSCRIPTS.name)
                table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, "first-round").commit()


def state(lake: Path) -> dict[str, Any]:
    parts = Components(load(lake))
    found: dict[str, Any] = {"raw": {(each.path, each.size) for each in parts.raw_store.list()}}
    for each in TABLES:
        table = parts.catalog.load_table(each.name)
        snapshots = [snapshot.snapshot_id for snapshot in table.snapshots()]
        next_seq = Progress.from_properties(table.properties).next_seq
        found[each.name] = hash_refs(table), table.metadata.refs, snapshots, table.schema(), next_seq
    return found


def kill_while_migrating(lake: Path, file: Path, point: str) -> None:
    command = [sys.executable, "-m", "headwater", "migrate", "--to", str(file), "--lake", str(lake)]
    environment = {**os.environ, "HEADWATER_FAULT": f"migrate.{point}"}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == -signal.SIGKILL, f"{point}: {done.stdout} {done.stderr}"


@pytest.mark.timeout(900)
def test_a_lake_moves_to_the_servers_killed_on_its_way_and_goes_on_there(
    stack_lake: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, file = tmp_path / "lake", settings_file(stack_lake, tmp_path / "stack.toml")
    lake_with_history(lake, tmp_path / "media")
    before = state(lake)
    assert set(before[TRANSCRIPTS.name][0]) == {"main", "first-round"}
    for kill in KILLS:
        kill_while_migrating(lake, file, kill)
    capsys.readouterr()
    assert main(["migrate", "--to", str(file), "--lake", str(lake), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["applied"]

    for name in ("raw", "log", "warehouse", "memo", "index", "catalog.db", "ledger.db"):
        (lake / name).rename(tmp_path / f"gone-{name}")
    assert load(lake).text("raw.uri").startswith("s3://")
    assert state(lake) == before
    with lakes.open(lake) as moved:
        rows, duplicates = rounds.contents(moved), moved.status()["duplicates"]
        again = "round 0, line 0: my invoice is wrong"
        moved.put_text(again, customer="acme", id="r0-0")
        moved.put_text("the servers have it now", customer="acme", id="new")
        moved.run()
        after = rounds.contents(moved)
        assert moved.status()["duplicates"] == duplicates + 1
        assert len(after["bronze.events"]) == len(rows["bronze.events"]) + 1
        assert after["silver.transcripts"] == rows["silver.transcripts"]
        assert len(after["silver.messages"]) == len(rows["silver.messages"]) + 1
        assert moved.pending().to_dict() == {"bronze": 0, "derive": 0, "embed": 0, "index": 0}
        assert moved.search("servers", limit=1).hits[0].entry.text == "the servers have it now"
        assert moved.search("loudness 100", limit=3).hits
        tagged = parts_of(moved).catalog.load_table(TRANSCRIPTS.name).metadata.refs["first-round"]
        assert tagged == before[TRANSCRIPTS.name][1]["first-round"]
    check_same_servers_by_another_name(lake, tmp_path, capsys)


def check_same_servers_by_another_name(lake: Path, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings, file = load(lake), directory / "alias.toml"
    before, state_before = (lake / FILE_NAME).read_bytes(), state(lake)
    for name in ("ledger.uri", "catalog.uri", "log.uri"):
        section, _, key = name.partition(".")
        alias = settings.text(name).replace("127.0.0.1", "localhost")
        assert alias != settings.text(name)
        file.write_text(to_toml({section: {key: alias}}), encoding="utf-8")
        assert main(["migrate", "--to", str(file), "--lake", str(lake), "--json"]) == Conflict.exit_code, name
        assert "both are the same" in capsys.readouterr().out
    endpoint = settings.text("s3.endpoint").replace("127.0.0.1", "localhost")
    file.write_text(to_toml({"s3": {"endpoint": endpoint}}), encoding="utf-8")
    assert main(["migrate", "--to", str(file), "--lake", str(lake), "--json"]) == InvalidRequest.exit_code
    assert "catalog.warehouse would move" in capsys.readouterr().out
    assert (lake / FILE_NAME).read_bytes() == before and state(lake) == state_before
    lakes.open(lake).close()
