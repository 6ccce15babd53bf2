"""Bronze is as sent: what a producer sends beside the fields of an event is kept, shown, and read by SQL as JSON."""

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import rounds
from calling import Answer, answer
from lakes import parts_of

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.domain.tables import EVENTS, QUARANTINE
from headwater.lake import Lake

Calling = Callable[..., Answer]
PATH = "images/acme/2026-03-01/screen.png"
MESSAGE = {"event_id": "m-1", "customer": "acme", "occurred_at": "2026-03-01T00:00:00Z", "text": "hello"}


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    rounds.use_cheap_models(tmp_path / "lake")
    with lakes.init(tmp_path / "lake") as made:
        yield made


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Calling:
    return partial(answer, capsys)


def send(lake: Lake, *events: dict[str, Any] | str) -> None:
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    parts_of(lake).log.publish_raw(lines)  # type: ignore[attr-defined]


def announced_image(lake: Lake, data: bytes) -> dict[str, Any]:
    parts_of(lake).raw_store.put_stream(PATH, io.BytesIO(data), "image/png")
    place = {"path": PATH, "size": len(data), "checksum": hashlib.sha256(data).hexdigest(), "bucket": "screens"}
    about = {"event_id": "i-1", "customer": "acme", "modality": "image", "occurred_at": "2026-03-01T00:00:00Z"}
    return {**about, "pointer": place}


def test_what_is_sent_beside_is_kept_shown_and_read_as_json(lake: Lake, tmp_path: Path, call: Calling) -> None:
    beside = {"shift": "night", "desk": {"floor": 4}, "scores": [1, None]}
    send(lake, {**MESSAGE, **beside}, {**MESSAGE, "event_id": "m-2"}, {**MESSAGE, "event_id": "m-3", "x": "y" * 9_000})
    send(lake, {**MESSAGE, "shift": "day"})
    lake.run()
    kept = lake.table("events").to_arrow().sort_by("event_id")
    extra = '{"desk":{"floor":4},"scores":[1,null],"shift":"night"}'
    assert kept["extra"].to_pylist() == [extra, None, f'{{"x":"{"y" * 9_000}"}}']
    assert lake.trace("m-1")["event"]["extra"] == beside and lake.trace("m-2")["event"]["extra"] is None
    query = "SELECT extra->>'$.desk.floor' AS floor FROM bronze.events WHERE extra->>'$.shift' = 'night'"
    assert lake.sql(query)["rows"] == [{"floor": "4"}]
    assert "also sent" in call("--lake", tmp_path / "lake", "trace", "m-1").out
    assert lake.status()["duplicates"] == 1


def test_every_line_that_is_refused_and_every_object_that_fails_tells_its_place_in_the_log(lake: Lake) -> None:
    send(lake, MESSAGE, "{", {**MESSAGE, "text": "other"}, announced_image(lake, b"\x89PNG\r\n\x1a\n and no more"))
    lake.run()
    rows = lake.sql("SELECT step, reason, log_partition, log_offset FROM quarantine ORDER BY log_offset")["rows"]
    assert [(row["step"], row["log_partition"], row["log_offset"]) for row in rows[:2]] == [
        ("bronze", 0, 1), ("bronze", 0, 2),
    ]  # fmt: skip
    assert len(rows) > 2 and {(row["log_partition"], row["log_offset"]) for row in rows[2:]} == {(0, 3)}
    assert lake.trace(PATH)["quarantined"][0]["log_offset"] == 3
    assert lake.trace(PATH)["event"]["extra"] == {"pointer": {"bucket": "screens"}}
    lake.quarantine.retry()
    again = lake.sql("SELECT DISTINCT log_offset FROM quarantine WHERE step <> 'bronze'")["rows"]
    assert again == [{"log_offset": 3}]


def test_a_lake_from_before_is_upgraded_and_keeps_what_comes_from_then_on(lake: Lake, tmp_path: Path) -> None:
    send(lake, {**MESSAGE, "shift": "night"}, "{")
    lake.run()
    catalog = parts_of(lake).catalog
    for table, columns in ((EVENTS, ["extra", "corrects"]), (QUARANTINE, ["log_partition", "log_offset"])):
        with catalog.load_table(table.name).update_schema(allow_incompatible_changes=True) as update:
            for column in columns:
                update.delete_column(column)
    for _ in range(2):  # killed before it was noted
        parts_of(lake).ledger.set_fact("format", "9")
        assert main(["--lake", str(tmp_path / "lake"), "upgrade"]) == 0
    with lakes.open(tmp_path / "lake") as opened:
        send(opened, {**MESSAGE, "event_id": "m-2", "shift": "day"}, "}")
        opened.run()
        assert opened.table("events").to_arrow().sort_by("event_id")["extra"].to_pylist() == [None, '{"shift":"day"}']
        rows = opened.sql("SELECT log_offset FROM quarantine ORDER BY log_offset NULLS FIRST")["rows"]
        assert rows == [{"log_offset": None}, {"log_offset": 3}]
        assert opened.trace("m-1")["event"]["extra"] is None
