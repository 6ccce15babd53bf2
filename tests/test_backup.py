"""Catalog and ledger come back from a backup: everything reads, nothing is let in twice, what is there stays."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import rounds
from backups import headwater, lose
from lakes import CALL, CALL_BYTES, parts_of, small_lake
from sample_rows import NOON, append, rows

from headwater import lake as lakes
from headwater.domain.progress import CONSUMED, NEXT_SEQ
from headwater.domain.tables import CAPTIONS, EMBEDDINGS, TABLES, TRANSCRIPTS
from headwater.errors import Conflict, DataFault, InvalidRequest, NotFound
from headwater.storage.tables import catalog as catalogs


def locations(lake: Path) -> dict[str, str]:
    with lakes.open(lake) as opened:
        catalog = parts_of(opened).catalog
        return {table.name: catalog.load_table(table.name).metadata_location for table in TABLES}


def add_transcript(lake: Path, text: str) -> None:
    with lakes.open(lake) as opened:
        table = parts_of(opened).catalog.load_table(TRANSCRIPTS.name)
        append(table, rows(TRANSCRIPTS, [{"object_id": CALL, "text": text}], first_seq=1))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return small_lake(tmp_path / "lake")


@pytest.fixture
def backup(lake: Path, tmp_path: Path) -> Path:
    file = tmp_path / "lake.backup"
    done = headwater("backup", file, "--lake", lake)
    assert done.code == 0 and set(done.out["tables"]) == {table.name for table in TABLES}
    return file


def test_a_backup_that_was_told_of_outlives_a_power_cut(lake: Path, tmp_path: Path, synced: set[str]) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    assert headwater("backup", shelf / "lake.backup", "--lake", lake).code == 0
    assert str(shelf) in synced, "the entry under its name, not only what it holds"


def test_a_lost_catalog_and_ledger_come_back_and_a_run_repeats_nothing(engine: None, tmp_path: Path) -> None:
    lake, file = tmp_path / "lake", tmp_path / "lake.backup"
    rounds.use_cheap_models(lake)
    folder = rounds.make_media(tmp_path / "media", 0)
    with lakes.init(lake) as opened:
        rounds.put_round(opened, folder, 0)
        opened.run()
        before, ledger = rounds.contents(opened), parts_of(opened).ledger
        claims = ledger.claim_first("event", [("r0-0", "", 0, 99)])
    assert headwater("backup", file, "--lake", lake).code == 0
    lose(lake, "catalog", "ledger")
    with pytest.raises(NotFound):
        lakes.open(lake)
    done = headwater("restore", file, "--lake", lake)
    assert done.code == 0 and done.out["catalog_lost"] and done.out["ledger_lost"]
    assert done.out["restored"]["claims_from_bronze"] == 0
    with lakes.open(lake) as opened:
        assert rounds.contents(opened) == before
        assert parts_of(opened).ledger.claim_first("event", [("r0-0", "", 0, 99)]) == claims
        opened.run()
        duplicates = opened.status()["duplicates"]
        for number in range(3):
            text = f"round 0, line {number}: my invoice is wrong"
            opened.put_text(text, customer="acme", id=f"r0-{number}")
        opened.run()
        assert rounds.contents(opened) == before
        assert opened.status()["duplicates"] == duplicates + 3


def test_a_ledger_older_than_the_tables_is_completed_from_bronze(lake: Path, backup: Path) -> None:
    add_transcript(lake, "after the backup")
    now = locations(lake)
    lose(lake, "ledger")
    done = headwater("restore", backup, "--lake", lake)
    assert done.code == 0 and done.out["ledger_lost"] and not done.out["catalog_lost"]
    assert locations(lake) == now, "tables that are there stay"
    with lakes.open(lake) as opened:
        ledger = parts_of(opened).ledger
        assert ledger.forget_claims_from(0, 0) == 0
        assert ledger.claim_first("object", [(CALL, "other", 0, 0)])[CALL] != ("other", 0, 0)
        assert b"".join(opened.get("e1")) == CALL_BYTES


def test_a_lake_that_has_moved_on_is_set_back_only_by_force(lake: Path, backup: Path) -> None:
    then = locations(lake)
    add_transcript(lake, "after the backup")
    now = locations(lake)
    refused = headwater("restore", backup, "--lake", lake)
    assert refused.code == Conflict.exit_code and "--force" in refused.out["error"]["message"]
    assert locations(lake) == now
    plan = headwater("restore", backup, "--lake", lake, "--dry-run")
    assert (plan.code, plan.out["restored"]) == (0, None) and locations(lake) == now
    assert headwater("restore", backup, "--lake", lake, "--force").code == 0
    assert locations(lake) == then


def test_an_index_that_is_ahead_of_its_table_is_emptied(lake: Path, backup: Path) -> None:
    with lakes.open(lake) as opened:
        catalogs.set_properties_if(parts_of(opened).catalog, EMBEDDINGS.name, {}, {NEXT_SEQ: "9"})
        parts_of(opened).index.set_position(9)
    lose(lake, "catalog")
    done = headwater("restore", backup, "--lake", lake)
    assert done.code == 0 and done.out["restored"]["index_emptied"]
    with lakes.open(lake) as opened:
        assert opened.pending().index == 3


def test_restoring_twice_is_restoring_once(lake: Path, backup: Path) -> None:
    lose(lake, "catalog", "ledger")
    assert headwater("restore", backup, "--lake", lake).code == 0
    then = locations(lake)
    assert headwater("restore", backup, "--lake", lake).code == 0
    assert headwater("restore", backup, "--lake", lake, "--force").code == 0
    assert locations(lake) == then
    with lakes.open(lake) as opened:
        run = parts_of(opened).ledger.start_run("run", NOON)
        assert run not in {each.id for each in parts_of(opened).ledger.runs(9)[1:]}


def test_a_backup_that_is_cut_or_changed_is_refused(lake: Path, backup: Path, tmp_path: Path) -> None:
    assert headwater("backup", backup, "--lake", lake).code == Conflict.exit_code, "a backup replaces nothing"
    cut = tmp_path / "cut"
    cut.write_bytes(backup.read_bytes()[:-200])
    assert headwater("restore", cut, "--lake", lake).code == DataFault.exit_code
    cut.write_bytes(backup.read_bytes().replace(b"format", b"farmat"))
    assert headwater("restore", cut, "--lake", lake).code == DataFault.exit_code


# Dies at the given word of a restore, by the signal that nothing can catch.
_KILLED = """
import os, signal, sys
from pathlib import Path
from headwater.components import Components
from headwater.settings import load
from headwater.upkeep.backup.restore import restore

def report(text):
    if sys.argv[3] in text:
        os.kill(os.getpid(), signal.SIGKILL)

parts = Components(load(Path(sys.argv[1])))
restore(parts, Path(sys.argv[2]), force=sys.argv[4] == "force", report=report)
"""


def kill_a_restore(lake: Path, backup: Path, at: str, force: str = "") -> None:
    line = [sys.executable, "-c", _KILLED, str(lake), str(backup), at, force]
    assert subprocess.run(line, check=False, timeout=60).returncode == -signal.SIGKILL


@pytest.mark.parametrize("at", ["Restoring", "ledger restored", f"{EMBEDDINGS.name}"])
def test_a_restore_that_was_killed_is_finished_by_running_it_again(lake: Path, backup: Path, at: str) -> None:
    then = locations(lake)
    with lakes.open(lake) as opened:
        parts_of(opened).index.set_position(9)
    lose(lake, "catalog", "ledger")
    kill_a_restore(lake, backup, at)
    with pytest.raises(NotFound):
        lakes.open(lake)
    done = headwater("restore", backup, "--lake", lake)
    assert done.code == 0 and done.out["ledger_lost"]
    assert locations(lake) == then
    with lakes.open(lake) as opened:
        assert opened.pending().index == 3
        assert parts_of(opened).ledger.claim_first("object", [(CALL, "other", 0, 0)])[CALL] != ("other", 0, 0)


def test_a_restored_catalog_never_stands_beside_an_index_that_is_ahead(lake: Path, backup: Path) -> None:
    then = locations(lake)
    with lakes.open(lake) as opened:
        parts_of(opened).index.set_position(9)
    lose(lake, "catalog")
    kill_a_restore(lake, backup, EMBEDDINGS.name)
    assert locations(lake) == then
    with lakes.open(lake) as opened:
        assert opened.pending().index == 3
    assert headwater("restore", backup, "--lake", lake).code == 0


def test_a_killed_restore_of_the_ledger_alone_is_finished_though_the_tables_moved_on(lake: Path, backup: Path) -> None:
    add_transcript(lake, "after the backup")
    now = locations(lake)
    lose(lake, "ledger")
    kill_a_restore(lake, backup, "ledger restored")
    assert headwater("restore", backup, "--lake", lake).code == 0
    assert locations(lake) == now
    with lakes.open(lake) as opened:
        assert parts_of(opened).ledger.claim_first("object", [(CALL, "other", 0, 0)])[CALL] != ("other", 0, 0)


def test_a_killed_restore_by_force_leaves_no_lake_that_is_half_set_back(lake: Path, backup: Path) -> None:
    then = locations(lake)
    add_transcript(lake, "after the backup")
    kill_a_restore(lake, backup, "ledger restored", "force")
    with pytest.raises(NotFound):
        lakes.open(lake)
    assert headwater("restore", backup, "--lake", lake, "--force").code == 0
    assert locations(lake) == then


def test_a_table_that_is_missing_comes_back_alone(lake: Path, backup: Path) -> None:
    then = locations(lake)
    with lakes.open(lake) as opened:
        parts_of(opened).catalog.drop_table(CAPTIONS.name)
    done = headwater("restore", backup, "--lake", lake)
    assert done.code == 0 and done.out["restored"]["tables"] == 1
    assert locations(lake) == then


def test_a_missing_table_of_which_more_was_read_than_the_backup_has_is_restored_only_by_force(
    lake: Path, backup: Path
) -> None:
    then = locations(lake)
    with lakes.open(lake) as opened:
        catalog = parts_of(opened).catalog
        catalogs.set_properties_if(catalog, EMBEDDINGS.name, {}, {CONSUMED: json.dumps({TRANSCRIPTS.name: 2})})
        catalog.drop_table(TRANSCRIPTS.name)
    refused = headwater("restore", backup, "--lake", lake)
    assert refused.code == Conflict.exit_code and EMBEDDINGS.name in refused.out["error"]["message"]
    assert headwater("restore", backup, "--lake", lake, "--force").code == 0
    assert locations(lake) == then


@pytest.fixture
def rest_server() -> Iterator[str]:
    """It says that it is an Iceberg REST catalog, and nothing else."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"defaults": {}, "overrides": {}}')

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_rest_catalog_is_backed_up_by_its_own_server(
    lake: Path, backup: Path, tmp_path: Path, rest_server: str
) -> None:
    chosen = ("--lake", lake, "--set", f"catalog.uri={rest_server}")
    for line in (("backup", tmp_path / "other"), ("restore", backup)):
        refused = headwater(*line, *chosen)
        assert refused.code == InvalidRequest.exit_code and "own tools" in refused.out["error"]["message"]
    assert not (tmp_path / "other").exists()
