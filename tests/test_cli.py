"""The command line: pinned JSON, results on stdout and the rest on stderr, one sentence for each error."""

import hashlib
import io
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from calling import answer
from lakes import CALL, CALL_BYTES, CALL_CHUNK, SCREEN, label_of, small_lake
from waiting import wait_until

from headwater.cli import output
from headwater.cli.commands import run
from headwater.cli.fitted_table import Column, cut, fit, widths
from headwater.cli.main import COMMANDS, main
from headwater.demo import tour
from headwater.errors import Conflict
from headwater.storage.ledger.ledger import open_ledger
from headwater.upkeep.format import FORMAT

PROGRAM = [sys.executable, "-m", "headwater"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read by all tests of this file, written by none."""
    return small_lake(tmp_path_factory.mktemp("cli") / "lake")


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    assert main(["init", str(tmp_path / "lake")]) == 0
    return tmp_path / "lake"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    return partial(answer, capsys)


def test_search_has_the_pinned_shape(call: Any, lake: Path) -> None:
    found = call("search", "refund", "--customer", "acme", "--lake", lake, "--json").json
    assert set(found) == {"hits", "stale_by"}
    hit = found["hits"][0]
    pinned = {"id", "score", "customer", "modality", "text", "snippet", "model", "locator", "pointer"}
    assert pinned <= set(hit)
    assert set(hit["pointer"]) == {"path", "offset", "size", "content_type", "checksum"}
    assert hit["pointer"]["checksum"] == hashlib.sha256(CALL_BYTES).hexdigest()
    assert (hit["id"], found["stale_by"]) == (CALL_CHUNK, 0)


def test_trace_has_the_pinned_shape(call: Any, lake: Path) -> None:
    found = call("trace", CALL_CHUNK, "--lake", lake, "--json").json
    assert {"object", "event", "derived", "vectors", "refs"} <= set(found)
    assert found["object"]["path"] == CALL
    assert all({"table", "id", "model"} <= set(row) for row in found["derived"])
    assert {row["table"] for row in found["derived"]} == {"silver.metadata", "silver.transcripts"}
    assert [row["id"] for row in found["vectors"]] == [CALL_CHUNK]


def test_status_has_the_pinned_shape(call: Any, lake: Path) -> None:
    found = call("status", "--lake", lake, "--json").json
    assert set(found) == {"tables", "log", "raw", "duplicates", "quarantined", "dismissed", "index"}
    assert all(set(row) == {"name", "rows", "files", "median_file_bytes", "snapshots"} for row in found["tables"])
    assert (set(found["log"]), set(found["raw"])) == ({"lag", "lost"}, {"objects", "bytes"})
    assert found["index"] == {"entries": 3, "stale_by": 0}
    assert (found["duplicates"], found["quarantined"]) == (7, 1)


def test_sql_has_the_pinned_shape(call: Any, lake: Path) -> None:
    found = call("sql", "select customer, count(*) as n from events group by 1 order by 1", "--lake", lake, "--json")
    assert found.json == {
        "columns": ["customer", "n"],
        "rows": [{"customer": "acme", "n": 2}, {"customer": "globex", "n": 1}],
    }


def test_the_other_shapes(call: Any, lake: Path) -> None:
    quarantine = call("quarantine", "--lake", lake, "--json").json
    assert quarantine["reasons"][0].keys() == {"reason", "count", "way_out"}
    assert quarantine["rows"][0]["object_id"] == "audio/acme/2026-03-01/cut.wav"
    show = call("show", "embeddings", "--limit", "2", "--lake", lake, "--json").json
    assert (show["table"], len(show["rows"])) == ("silver.embeddings", 2)
    assert "vector" not in show["columns"]
    flow = call("flow", "--lake", lake, "--json").json
    assert [(stage["name"], stage["pending"]) for stage in flow["stages"]] == [
        ("land", None), ("bronze", 0), ("derive", 0), ("embed", 0), ("index", 0),
    ]  # fmt: skip
    settings = call("settings", "--lake", lake, "--json").json
    assert settings["settings"][0].keys() == {"name", "value", "origin", "purpose"}
    plan = call("maintain", "--dry-run", "--lake", lake, "--json").json
    assert plan["tables"][0].keys() == {"table", "files", "compact", "expire", "older_than"}
    upgrade = call("upgrade", "--lake", lake, "--json").json
    assert upgrade == {"found": FORMAT, "wanted": FORMAT, "steps": [], "applied": True}


def test_what_a_person_sees_says_the_same(call: Any, lake: Path) -> None:
    found = call("search", "refund", "--lake", lake).out
    assert "01:05–01:11" in found and CALL in found and label_of("models.transcribe") in found and CALL_CHUNK in found
    assert "TRUNCATED × 1" in call("quarantine", "--lake", lake).out
    assert "silver.transcripts" in call("trace", "e1", "--lake", lake).out
    assert "up to date" in call("flow", "--lake", lake).out
    board = call("status", "--lake", lake).out
    assert "7 duplicates seen" in board and "pending     nothing" in board
    assert SCREEN in call("show", "captions", "--lake", lake).out


@pytest.mark.parametrize(
    "line", [["search", "refund"], ["trace", "e1"], ["show", "transcripts"], ["quarantine"],
             ["sql", "select text from transcripts"]],
)  # fmt: skip
def test_data_cannot_drive_the_terminal(call: Any, lake: Path, line: list[str]) -> None:
    for arguments in (line, [*line, "--json"]):
        found = call(*arguments, "--lake", lake).out
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(found)


def test_json_keeps_what_the_terminal_is_spared(call: Any, lake: Path) -> None:
    rows = call("sql", "select text from transcripts", "--lake", lake, "--json").json["rows"]
    assert rows[0]["text"].startswith("the refund never \x1b[31marrived")


def test_get_gives_the_raw_bytes(lake: Path, tmp_path: Path) -> None:
    told = [*PROGRAM, "--lake", str(lake), "get", "e1"]
    assert subprocess.run(told, check=True, capture_output=True).stdout == CALL_BYTES
    assert main(["--lake", str(lake), "get", CALL_CHUNK, "-o", str(tmp_path / "call.wav")]) == 0
    assert (tmp_path / "call.wav").read_bytes() == CALL_BYTES


def test_get_leaves_no_file_of_bytes_that_fail_their_checksum(call: Any, tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake")
    stored = lake / "raw" / CALL
    stored.chmod(0o644)
    stored.write_bytes(b"tampered")
    answer = call("get", "e1", "-o", tmp_path / "call.wav", "--lake", lake)
    assert answer.code == 6 and "checksum" in answer.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lake"]


def test_put_tells_each_file_and_stores_the_sound_ones(call: Any, empty: Path, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    (tmp_path / "notes.xyz").write_text("?")
    answer = call("put", tmp_path / "a.wav", tmp_path / "notes.xyz", tmp_path / "no.wav", "--customer", "acme",
                  "--lake", empty, "--json")  # fmt: skip
    assert answer.code == 2
    assert answer.json["summary"] == {"stored": 1, "already_there": 0, "failed": 2}
    stored, refused, missing = answer.json["results"]
    assert set(stored) == {"source", "status", "id", "path", "size", "error"}
    assert (empty / "raw" / stored["path"]).read_bytes() == b"RIFF"
    assert refused["error"] == {"kind": "InvalidRequest", "message": refused["error"]["message"], "retryable": False}
    assert missing["error"]["kind"] == "NotFound"
    again = call("put", tmp_path / "a.wav", "--customer", "acme", "--lake", empty)
    assert again.code == 0 and "1 already there" in again.out


def test_put_takes_text_and_lines_of_stdin(call: Any, empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("first\n\nsecond\n"))
    answer = call("put", "-", "--text", "third", "--customer", "acme", "--lake", empty, "--json")
    assert answer.json["summary"]["stored"] == 3
    assert call("flow", "--lake", empty, "--json").json["stages"][1]["pending"] == 3


def test_put_refuses_one_id_for_several_and_nothing_at_all(call: Any, empty: Path) -> None:
    several = call("put", "--text", "a", "--text", "b", "--id", "x", "--customer", "acme", "--lake", empty)
    assert several.code == 2 and "--id" in several.err
    assert call("put", "--customer", "acme", "--lake", empty).code == 2
    late = call("put", "--text", "a", "--at", "yesterday", "--customer", "acme", "--lake", empty)
    assert late.code == 2 and "2026-01-31" in late.err


def test_nothing_pending_is_found_out_without_spark(call: Any, empty: Path) -> None:
    answer = call("run", "--once", "--lake", empty)
    assert (answer.code, answer.out) == (0, "Nothing pending.\n")
    assert call("run", "--once", "--lake", empty, "--json").json == {"started": False, "done": {}, "models": {}}
    assert not (empty / "logs").exists()
    assert call("retry", "--lake", empty).out == "Nothing to retry.\n"


@pytest.mark.parametrize(
    ("line", "code", "kind", "hint"),
    [
        (["search"], 2, "InvalidRequest", "--help"),
        (["serch", "x"], 2, "InvalidRequest", "Did you mean search?"),
        (["show", "transcipts"], 3, "NotFound", "transcripts"),
        (["trace", "nobody"], 3, "NotFound", "nobody"),
        (["sql", "drop table events"], 2, "InvalidRequest", "SELECT"),
        (["settings", "--set", "raw.url=x"], 2, "InvalidRequest", "raw.uri"),
        (["status", "--set", "raw.uri"], 2, "InvalidRequest", "--set raw.uri=VALUE"),
        (["quarantine", "--reason", "bored"], 2, "InvalidRequest", "TRUNCATED"),
        (["search", "x", "--limit", "0"], 2, "InvalidRequest", "1<=x<=1000"),
        (["get", "e1"], 2, "InvalidRequest", "-o"),
    ],
)
def test_an_error_is_one_sentence_and_an_exit_code(
    call: Any, lake: Path, line: list[str], code: int, kind: str, hint: str
) -> None:
    if line[0] != "get":
        plain = call("--lake", lake, *line)
        assert (plain.code, plain.out) == (code, "")
        assert hint in plain.err and "Traceback" not in plain.err and plain.err.count("\n") == 1
    told = call("--lake", lake, *line, "--json")
    assert (told.code, told.err) == (code, "")
    assert set(told.json) == {"error"} and set(told.json["error"]) == {"kind", "message", "retryable"}
    assert told.json["error"]["kind"] == kind and hint in told.json["error"]["message"]


def test_where_no_lake_is_the_error_says_how_to_make_one(call: Any, tmp_path: Path) -> None:
    answer = call("status", "--lake", tmp_path / "none")
    assert answer.code == 3 and f"headwater init {tmp_path / 'none'}" in answer.err


def test_a_bug_is_one_sentence_unless_asked_for_more(call: Any, empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for metadata in (empty / "warehouse").rglob("*.metadata.json"):
        metadata.write_text("{")
    short = call("flow", "--lake", empty)
    assert short.code != 0 and short.err.count("\n") == 1 and "Traceback" not in short.err
    monkeypatch.setenv("HEADWATER_DEBUG", "1")
    assert "Traceback" in call("flow", "--lake", empty).err


def test_a_newer_lake_is_refused_and_an_older_one_is_sent_to_upgrade(call: Any, empty: Path) -> None:
    ledger = open_ledger(f"sqlite:///{empty}/ledger.db")
    ledger.set_fact("format", "99")
    newer = call("status", "--lake", empty)
    assert newer.code == 4 and "99" in newer.err and newer.err.count("\n") == 1
    assert call("upgrade", "--lake", empty).code == 4
    ledger.set_fact("format", "0")
    assert "headwater upgrade" in call("status", "--lake", empty).err


def test_the_lake_is_the_nearest_upwards_or_named(
    call: Any, lake: Path, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = empty / "some" / "where"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert call("settings", "--json").json["lake"] == str(empty)
    monkeypatch.setenv("HEADWATER_LAKE", str(lake))
    assert call("settings", "--json").json["lake"] == str(lake)
    assert call("--lake", str(empty), "settings", "--json").json["lake"] == str(empty)
    assert call("settings", "--json", "--lake", str(empty)).json["lake"] == str(empty)


def test_secrets_are_masked_wherever_they_come_from(call: Any, empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_S3_SECRET_KEY", "hush-hush")
    answer = call("settings", "--lake", empty)
    assert "hush-hush" not in answer.out and "environment HEADWATER_S3_SECRET_KEY" in answer.out
    assert "hush-hush" not in call("settings", "--lake", empty, "--set", "s3.secret_key=hush-hush", "--json").out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_json_and_lake(call: Any, name: str) -> None:
    answer = call(name, "--help")
    assert answer.code == 0
    assert {"--json", "--lake", "--set"} <= set(answer.out.replace(",", " ").split())


def test_help_imports_nothing_heavy_and_comes_at_once() -> None:
    spent = []
    for line in (["--help"], ["search", "--help"], ["run", "--help"], ["demo", "--help"]):
        code = (
            f"import sys, resource; from headwater.cli.main import main; main({line!r}); "
            "heavy = {'pyarrow', 'numpy', 'rich', 'pyspark', 'duckdb', 'pyiceberg', 'lancedb'} & set(sys.modules); "
            "used = resource.getrusage(resource.RUSAGE_SELF); "
            "print('#', sorted(heavy), used.ru_utime + used.ru_stime)"
        )
        last = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        heavy, _, seconds = last.splitlines()[-1].removeprefix("# ").rpartition(" ")
        assert heavy == "[]"
        spent.append(float(seconds))
    # CPU time, because other tests may hold the cores; alone, the wall shows the same.
    assert max(spent) < 0.5


def test_a_reader_that_went_away_is_no_error(lake: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for extra in ([], ["--json"]):
        line = [*PROGRAM, "--lake", str(lake), "settings", *extra]
        done = subprocess.run(line, check=False, stdout=writer, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (141, "")
    os.close(writer)


def test_ctrl_c_is_130_and_no_traceback(empty: Path) -> None:
    line = [*PROGRAM, "--lake", str(empty), "put", "-", "--customer", "acme"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(line, text=True, **pipes)  # type: ignore[call-overload]
    assert process.stdin is not None
    process.stdin.write("hello\n")
    process.stdin.flush()
    wait_until(lambda: list((empty / "log").glob("*.jsonl")) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "Interrupted.\n")


def test_a_run_that_was_stopped_half_way_does_not_say_that_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    ran: dict[str, Any] = {"started": True, "done": {"bronze": 50_003}, "models": {}}
    run.draw(ran, interrupted=True)
    stopped = capsys.readouterr().out
    assert "bronze 50,003" in stopped and "headwater run --once" in stopped and "Done" not in stopped
    run.draw(ran, interrupted=False)
    assert capsys.readouterr().out == "Done: bronze 50,003.\n"


def test_the_map_fits_a_terminal_of_80_columns(call: Any, lake: Path) -> None:
    assert max(map(len, call("flow", "--lake", lake).out.splitlines())) <= 80


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_their_terminal_and_say_what_found_no_room(
    call: Any, lake: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """Whole cells of the columns that matter most, rather than a letter of each."""
    output.console.cache_clear()
    monkeypatch.setattr(output, "_PIPE_WIDTH", width)
    try:
        for name in ("transcripts", "captions", "messages", "quarantine"):
            *rows, last = call("show", name, "--lake", lake).out.splitlines()
            assert max(map(len, rows)) <= width and "newest first." in last
            assert width > 80 or name != "transcripts" or "No room for: " in last
        listed = call("models", "--lake", lake).out
        known = call("models", "--lake", lake, "--json").json["models"]
        assert all(model["fingerprint"] in listed and model["model"] in listed for model in known)
        assert max(map(len, listed.splitlines())) <= width
    finally:
        output.console.cache_clear()


def test_of_an_object_the_end_is_shown_and_of_a_text_the_beginning() -> None:
    kinds = {"object_id": Column(10, shows_end=True), "text": Column(12)}
    rows = [{"object_id": "documents/acme/note.md", "text": "where is my refund", "empty": "", "more": "xyz"}]
    matter = ("object_id", "text", "empty", "more")
    assert fit(rows, matter, kinds, 24) == ["object_id", "text"]
    assert widths(rows, ["object_id", "text"], kinds, 30) == {"object_id": 16, "text": 12}
    assert fit(rows, matter, kinds, 200) == ["object_id", "text", "more"]
    assert cut("documents/acme/note.md", 10, kinds["object_id"]) == "…e/note.md"
    assert cut("where is my refund", 12) == "where is my…"


def test_the_first_signal_asks_and_the_second_ends() -> None:
    code = (
        "import signal\nfrom headwater.cli.progress import stoppable\nwith stoppable() as stop:\n    print('ready')\n"
    )
    patient, deaf = code + "    stop.wait()\nprint('done')", code + "    while True: signal.pause()"
    for script, signals, ends in ((patient, [signal.SIGTERM], 0), (deaf, [signal.SIGINT, signal.SIGINT], 130)):
        process = subprocess.Popen([sys.executable, "-uc", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        assert process.stderr is not None
        process.send_signal(signals[0])
        assert process.stderr.readline() == b"\n" and b"Stopping after the work" in process.stderr.readline()
        for number in signals[1:]:
            process.send_signal(number)
        process.communicate(timeout=30)
        assert process.returncode == ends


def test_without_java_the_demo_says_so_at_once(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    answer = call("demo", "--lake", tmp_path / "demo")
    assert (answer.code, answer.out) == (5, "") and "install openjdk" in answer.err
    assert not (tmp_path / "demo").exists()


def test_the_version_is_told(call: Any) -> None:
    assert call("--version").out.startswith("headwater ")


def test_the_demo_replaces_only_what_the_demo_made(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(Conflict, match="--lake"):
        tour.make_lake(mine, keep=False)
    assert (mine / "thesis.txt").read_text() == "years of work"
    for _ in range(2):
        tour.make_lake(tmp_path / "demo", keep=False).close()
    assert (tmp_path / "demo" / tour.MARK).is_file()
