"""Metrics: text that a strict reader of OpenMetrics takes, with the numbers of status, and served to loopback alone."""

import http.client
import json
import re
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lakes import small_lake

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.domain.tables import TABLES
from headwater.errors import Unavailable
from headwater.flow.drive.pending import Pending
from headwater.storage.ledger.ledger import Ledger, open_ledger
from headwater.upkeep import metrics
from headwater.upkeep.metrics import Family, serving

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)?\}})? (-?[0-9.]+(?:e[+-]?[0-9]+)?)")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
Samples = dict[tuple[str, str], float]


def parse(text: str) -> Samples:
    """What the text says; fails on anything that OpenMetrics 1.0 does not allow of gauges and counters."""
    assert text.endswith("# EOF\n") and text.count("# EOF") == 1
    kinds: dict[str, str] = {}
    samples: Samples = {}
    family = ""
    for line in text.splitlines()[:-1]:
        if line.startswith("#"):
            _, word, name, rest = line.split(" ", 3)
            if word == "TYPE":
                assert name not in kinds and rest in {"gauge", "counter"} and re.fullmatch(NAME, name)
                assert not name.endswith("_total")
                family, kinds[name] = name, rest
            else:
                assert name == family and word in {"UNIT", "HELP"}
                assert word != "UNIT" or name.endswith(f"_{rest}")
            continue
        found = SAMPLE.fullmatch(line)
        assert found, line
        # The samples of a family stand together, under its own name.
        assert found[1] == family + ("_total" if kinds[family] == "counter" else "")
        assert (found[1], found[2] or "") not in samples, f"{line} twice"
        samples[found[1], found[2] or ""] = float(found[3])
    return samples


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_lake(tmp_path_factory.mktemp("metrics") / "lake")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return open_ledger(f"sqlite:///{tmp_path}/ledger.db")


def test_the_numbers_are_those_of_status_and_pending(lake: Path) -> None:
    with lakes.open(lake) as opened:
        found, status, pending = parse(opened.metrics()), opened.status(), opened.pending()
    for line in status["tables"]:
        for name in ("rows", "files", "median_file_bytes", "snapshots"):
            assert found[f"headwater_table_{name}", f'table="{line["name"]}"'] == line[name]
    assert len([key for key in found if key[0] == "headwater_table_rows"]) == len(TABLES)
    assert {stage: found["headwater_pending", f'stage="{stage}"'] for stage in pending.to_dict()} == pending.to_dict()
    assert found["headwater_log_lag", ""] == status["log"]["lag"]
    assert found["headwater_log_lost", ""] == 0
    assert found["headwater_duplicates_total", ""] == 7
    assert found["headwater_quarantined", ""] == 1 == found["headwater_quarantined_by_reason", 'reason="TRUNCATED"']
    assert (found["headwater_index_entries", ""], found["headwater_index_stale", ""]) == (3, 0)
    raw = (found["headwater_raw_objects", ""], found["headwater_raw_bytes", ""])
    assert raw == (status["raw"]["objects"], status["raw"]["bytes"])
    assert found["headwater_at_work", ""] == 0


def test_a_new_lake_has_metrics_too(tmp_path: Path) -> None:
    with lakes.init(tmp_path / "lake") as opened:
        assert parse(opened.metrics())["headwater_table_rows", 'table="bronze.events"'] == 0


def test_text_of_any_kind_stays_inside_its_quotes() -> None:
    family = Family("x", "gauge", 'a "help"\nof two lines', [({"of": 'a\\b"c\nd'}, 1.5)])
    assert parse("\n".join([*family.lines(), "# EOF", ""])) == {("x", 'of="a\\\\b\\"c\\nd"'): 1.5}


def last_run(ledger: Ledger, now: datetime) -> dict[str, float]:
    status: dict[str, Any] = {
        "tables": [], "log": {"lag": 0, "lost": 0}, "raw": {"objects": 0, "bytes": 0}, "duplicates": 0,
        "quarantined": 0, "dismissed": 0, "index": {"entries": 0, "stale_by": 0},
    }  # fmt: skip
    found = parse(metrics.metrics(status, Pending({}), {}, ledger, now=now))
    flags = {key[1]: value for key, value in found.items() if key[0] == "headwater_last_run"}
    age = found.get(("headwater_last_run_age_seconds", 'kind="run"'))
    return {label: value for label, value in flags.items() if value} | ({} if age is None else {"age": age})


def test_the_last_run_is_done_failed_running_or_died(ledger: Ledger) -> None:
    assert last_run(ledger, NOW) == {}
    lease = ledger.acquire_lease("run", "test", 60, NOW)
    first = ledger.start_run("run", NOW)
    assert last_run(ledger, NOW + timedelta(seconds=9)) == {'kind="run",outcome="running"': 1, "age": 9}
    ledger.release(lease)
    assert last_run(ledger, NOW) == {'kind="run",outcome="died"': 1, "age": 0}
    ledger.finish_run(first, "failed", NOW)
    assert last_run(ledger, NOW + timedelta(seconds=30)) == {'kind="run",outcome="failed"': 1, "age": 30}
    ledger.finish_run(ledger.start_run("run", NOW), "done", NOW)
    assert last_run(ledger, NOW) == {'kind="run",outcome="done"': 1, "age": 0}


def test_what_models_did_is_counted_over_every_run(ledger: Ledger) -> None:
    for cost in (0.5, 0.25):
        run = ledger.start_run("run", NOW)
        ledger.note_run(run, {"models": {"transcribe/f00d": {"model": "m 1", "calls": 3, "cost": cost, "tokens": 7}}})
    ledger.finish_run(ledger.start_run("maintain", NOW), "done", NOW)
    found = parse("\n".join([line for family in metrics._models(ledger) for line in family.lines()] + ["# EOF", ""]))
    labels = 'step="transcribe",model="m 1"'
    assert found["headwater_model_calls_total", labels] == 6
    assert found["headwater_model_cost_total", labels] == 0.75


def test_the_command_prints_it_or_replaces_a_file(lake: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["metrics", "--lake", str(lake)]) == 0
    printed = capsys.readouterr().out
    assert parse(printed)
    file = tmp_path / "headwater.prom"
    file.write_text("what was there before")
    assert main(["metrics", "--lake", str(lake), "-o", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(file), "bytes": file.stat().st_size}
    assert parse(file.read_text()).keys() == parse(printed).keys()
    assert [path.name for path in tmp_path.iterdir()] == ["headwater.prom"]


def ask(port: int, method: str = "GET", path: str = "/metrics", host: str = "127.0.0.1:80") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    found = (answer.status, answer.headers.get("Content-Type", ""), answer.read().decode())
    connection.close()
    return found


def test_it_is_served_to_this_machine_and_to_nothing_but_a_plain_get() -> None:
    asked: list[int] = []
    with serving(0, lambda: asked.append(1) or "# EOF\n") as port:  # type: ignore[func-returns-value]
        status, kind, text = ask(port)
        assert (status, text) == (200, "# EOF\n") and kind.startswith("application/openmetrics-text; version=1.0.0")
        assert ask(port, host="localhost")[0] == 200
        assert len(asked) == 1  # a second look within seconds is answered from the first
        assert ask(port, host="evil.example")[0] == 403
        assert ask(port, path="/")[0] == 404
        assert ask(port, method="POST")[0] == 501
        with socket.create_server(("127.0.0.1", 0)) as taken:
            number = taken.getsockname()[1]
            with pytest.raises(Unavailable, match=str(number)), serving(number, lambda: ""):
                pass
    with pytest.raises(ConnectionRefusedError):
        ask(port)


def test_a_lake_that_does_not_answer_is_told_by_the_status() -> None:
    def tell() -> str:
        raise Unavailable("The catalog does not answer.")

    with serving(0, tell) as port:
        assert ask(port)[::2] == (503, "The catalog does not answer.\n")


def told_of_models(ledger: Ledger) -> Samples:
    return parse("\n".join([line for family in metrics._models(ledger) for line in family.lines()] + ["# EOF", ""]))


def test_a_run_that_is_over_is_read_from_the_journal_once(ledger: Ledger) -> None:
    calls = ("headwater_model_calls_total", 'step="transcribe",model="m 1"')

    def effort(calls: int) -> dict[str, Any]:
        return {"models": {"transcribe/f00d": {"model": "m 1", "calls": calls}}}

    over, killed, running = (ledger.start_run("run", NOW) for _ in range(3))
    ledger.finish_run(over, "done", NOW, effort(100))
    ledger.note_run(killed, effort(10))
    ledger.note_run(running, effort(1))
    assert told_of_models(ledger)[calls] == 111
    ledger.note_run(running, effort(2))
    ledger.note_run(over, effort(999))  # nobody does that: if it were read again it would show
    assert told_of_models(ledger)[calls] == 112
    ledger.finish_run(running, "done", NOW, effort(3))
    ledger.finish_run(ledger.start_run("run", NOW), "done", NOW, effort(1_000))
    assert [told_of_models(ledger)[calls] for _ in range(2)] == [1_113, 1_113]
