"""Lineage and health: from any id to the source and back, and what the lake's metadata tells."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyiceberg.table import Table as IcebergTable
from sample_rows import NOON, append, data_file, rows

from headwater import settings as settings_module
from headwater.domain import tables
from headwater.domain.event import Event
from headwater.domain.modality import Modality
from headwater.domain.pointer import Pointer
from headwater.domain.progress import CONSUMED, DUPLICATES, NEXT_SEQ
from headwater.domain.tables import CAPTIONS, EMBEDDINGS, EVENTS, MESSAGES, METADATA, QUARANTINE, TRANSCRIPTS
from headwater.errors import DataFault, InvalidRequest, NotFound
from headwater.settings import Settings
from headwater.storage.index.vector_index import VectorIndex, open_index
from headwater.storage.log.pointer_log import open_pointer_log
from headwater.storage.query.history import snapshots_with_rows
from headwater.storage.raw.store import RawStore, open_raw_store
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.row_filter import RowFilter
from headwater.upkeep.health import status
from headwater.upkeep.lineage import Trace, fetch_object, trace

CALL = "audio/acme/2026-03-01/call.wav"
OTHER = "audio/acme/2026-03-01/other.wav"
CHAT = "chat/acme/m1"


class Lake:
    def __init__(self, root: Path) -> None:
        self.settings: Settings = settings_module.resolve(root, {}, {}, {})
        self.writer = catalogs.open_catalog(self.settings)
        catalogs.create_tables(self.writer)
        self.reader = catalogs.open_reader(self.settings)
        self.raw: RawStore = open_raw_store(self.settings.text("raw.uri"), self.settings)
        self.index: VectorIndex = open_index(self.settings)

    def add(
        self, table: tables.Table, *given: dict[str, Any], first: int = 0, properties: dict[str, str] | None = None
    ) -> None:
        loaded = self.writer.load_table(table.name)
        append(loaded, rows(table, given, first_seq=first), table.day)
        changes = {NEXT_SEQ: str(first + len(given)), **(properties or {})}
        catalogs.set_properties_if(self.writer, table.name, {}, changes)

    def trace(self, name: str) -> Trace:
        return trace(self.reader, self.index, self.raw, name)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    pointer = lake.raw.put_bytes(CALL, b"RIFF", "audio/wav").to_dict()
    about = {"customer": "acme", "modality": "audio", "event_id": "e1", "object_id": CALL, "pointer": pointer}
    other = {**about, "object_id": OTHER, "event_id": "e2", "pointer": {**pointer, "path": OTHER}}
    chat = {"customer": "acme", "modality": "chat", "event_id": "m1", "object_id": CHAT, "text": "hello there"}
    lake.add(EVENTS, about, other, chat, properties={CONSUMED: '{"log": {"0": 3}}', DUPLICATES: "7"})
    lake.add(METADATA, {**about, "step": "probe", "model": "headers 1", "fingerprint": "p1"})
    heard = {"step": "transcribe", "model": "pocketsphinx 5", "fingerprint": "f1", "text": "hello"}
    lake.add(TRANSCRIPTS, {**about, **heard}, {**other, **heard})
    chunk = {"step": "embed", "model": "lexical 1", "fingerprint": "x1", "source_table": "silver.transcripts"}
    lake.add(EMBEDDINGS, *({**about, **chunk, "chunk_id": f"{n:024x}", "chunk": n, "text": "hello"} for n in range(2)))
    lake.add(QUARANTINE, {"event_id": "bad", "step": "bronze", "reason": "BAD_EVENT"},
             {"event_id": "e2", "object_id": OTHER, "step": "probe", "reason": "TRUNCATED"})  # fmt: skip
    return lake


@pytest.mark.parametrize("name", ["e1", CALL, f"s3://bucket/raw/{CALL}", f"/srv/raw/{CALL}", f"file:///srv/{CALL}",
                                  f"{1:024x}", f"{CALL}#transcribe.f1"])  # fmt: skip
def test_every_id_of_an_object_leads_to_the_same_trace(lake: Lake, name: str) -> None:
    found = lake.trace(name).to_dict()
    json.dumps(found)
    assert {"object", "event", "derived", "vectors", "refs"} <= set(found)
    assert (found["object"]["path"], found["object"]["exists"]) == (CALL, True)
    assert found["event"]["event_id"] == "e1"
    assert {(row["table"], row["step"], row["model"]) for row in found["derived"]} == {
        ("silver.metadata", "probe", "headers 1"), ("silver.transcripts", "transcribe", "pocketsphinx 5"),
    }  # fmt: skip
    assert [row["id"] for row in found["vectors"]] == [f"{n:024x}" for n in range(2)]
    assert {row["table"] for row in found["refs"] if row["ref"] == "main"} == {
        "bronze.events", "silver.metadata", "silver.transcripts", "silver.embeddings",
    }  # fmt: skip


def test_what_a_trace_names_can_be_traced(lake: Lake) -> None:
    found = lake.trace("e1")
    for row in (*found.derived, *found.vectors):
        assert lake.trace(row["id"]).object == found.object


def test_a_chat_message_is_an_object_without_bytes_in_the_store(lake: Lake) -> None:
    found = lake.trace("m1")
    assert (found.object["inline"], found.object["exists"], found.derived) == (True, True, ())
    assert b"".join(fetch_object(lake.reader, lake.raw, CHAT)) == b"hello there"


def test_a_missing_object_and_its_quarantine_are_shown(lake: Lake) -> None:
    found = lake.trace(OTHER)
    assert found.object["exists"] is False
    assert [row["reason"] for row in found.quarantined] == ["TRUNCATED"]
    assert [row["reason"] for row in lake.trace("bad").quarantined] == ["BAD_EVENT"]


def test_a_vector_is_indexed_once_the_index_has_passed_it(lake: Lake) -> None:
    assert [row["indexed"] for row in lake.trace("e1").vectors] == [False, False]


def test_what_is_not_there_is_not_found(lake: Lake) -> None:
    for name in ("nothing", "audio/acme/2026-03-01/missing.wav", "it's"):
        with pytest.raises(NotFound, match="headwater run"):
            lake.trace(name)
    with pytest.raises(InvalidRequest):
        lake.trace(" ")


def test_an_object_is_fetched_whole_and_verified(lake: Lake) -> None:
    assert b"".join(fetch_object(lake.reader, lake.raw, "e1")) == b"RIFF"
    (lake.settings.lake / "raw" / CALL).chmod(0o644)
    (lake.settings.lake / "raw" / CALL).write_bytes(b"RIFX")
    with pytest.raises(DataFault, match="CORRUPT"):
        b"".join(fetch_object(lake.reader, lake.raw, "e1"))


def rewrite(table: IcebergTable, without: str) -> None:
    """All files become one, minus an object: what a compaction and an erasure do."""
    rows = table.scan().to_arrow()
    left = data_file(table, rows.filter(pc.not_equal(rows["object_id"], without)), NOON.date())
    old = [task.file for task in table.scan().plan_files()]
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
        for file in old:
            overwrite.delete_data_file(file)
        overwrite.append_data_file(left)


def held(lake: Lake, table: str, object_id: str) -> list[int]:
    """Which snapshots hold it, told by brute force."""
    loaded = lake.writer.load_table(table)
    return sorted(
        one.snapshot_id
        for one in loaded.metadata.snapshots
        if object_id in loaded.scan(snapshot_id=one.snapshot_id).to_arrow()["object_id"].to_pylist()
    )


def test_the_snapshots_that_hold_an_object_are_found_through_rewrites(lake: Lake) -> None:
    for number in range(4):
        given = [{"customer": "acme", "object_id": f"chat/acme/{number}", "text": "x"},
                 {"customer": "acme", "object_id": f"chat/acme/9{number}", "text": "x"}]  # fmt: skip
        lake.add(MESSAGES, *given, first=2 * number)
        if number == 2:
            rewrite(lake.writer.load_table(MESSAGES.name), without="chat/acme/90")
    rewrite(lake.writer.load_table(MESSAGES.name), without="chat/acme/1")
    messages = lake.reader.load_table("silver.messages")
    for number in (0, 1, 2, 3, 90, 92):
        name = f"chat/acme/{number}"
        where: RowFilter = {"object_id": name, "occurred_at": NOON}
        assert sorted(snapshots_with_rows(messages, where)) == held(lake, "silver.messages", name), name
    assert snapshots_with_rows(messages, {"object_id": "chat/acme/none"}) == set()


def test_status_has_the_pinned_shape_and_subtracts_positions(lake: Lake) -> None:
    log = open_pointer_log(lake.settings.text("log.uri"), lake.settings)
    pointer = Pointer(CALL, 4, "audio/wav", "ab" * 32)
    log.publish([Event(f"e{n}", Modality.AUDIO, "acme", pointer, NOON) for n in range(5)])
    found = json.loads(json.dumps(status(lake.reader, log, lake.index)))
    assert set(found) == {"tables", "log", "raw", "duplicates", "quarantined", "dismissed", "index"}
    by_name = {line["name"]: line for line in found["tables"]}
    assert list(by_name) == [table.name for table in tables.TABLES]
    events = by_name["bronze.events"]
    assert set(events) == {"name", "rows", "files", "median_file_bytes", "snapshots"}
    assert (events["rows"], events["files"], events["snapshots"]) == (3, 1, 1)
    assert events["median_file_bytes"] > 0
    assert by_name[CAPTIONS.name] == {
        "name": CAPTIONS.name,
        "rows": 0,
        "files": 0,
        "median_file_bytes": 0,
        "snapshots": 0,
    }
    assert found["log"] == {"lag": 2, "lost": 0}
    assert found["raw"] == {"objects": 2, "bytes": 8}
    assert (found["duplicates"], found["quarantined"]) == (7, 2)
    assert found["index"] == {"entries": 0, "stale_by": 2}


def test_trace_and_status_load_no_jvm_no_pandas_and_no_index_library(lake: Lake) -> None:
    code = f"""
import sys
from pathlib import Path
from headwater import settings
from headwater.storage.tables import catalog
from headwater.storage.log import pointer_log
from headwater.storage.raw import store as raw_store
from headwater.storage.index import vector_index
from headwater.upkeep import health, lineage
chosen = settings.resolve(Path({str(lake.settings.lake)!r}), {{}}, {{}}, {{}})
reader, index = catalog.open_reader(chosen), vector_index.open_index(chosen)
lineage.trace(reader, index, raw_store.open_raw_store(chosen.text("raw.uri"), chosen), "e1")
health.status(reader, pointer_log.open_pointer_log(chosen.text("log.uri"), chosen), index)
print([name for name in ("pyspark", "py4j", "pandas", "sqlalchemy", "lancedb") if name in sys.modules])
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_day_that_cannot_hold_the_object_is_not_read(lake: Lake) -> None:
    for day in range(1, 4):
        lake.add(
            TRANSCRIPTS, {"customer": "acme", "object_id": f"audio/acme/x/{day}", "occurred_at": NOON + timedelta(day)}
        )
    away = [path for path in (lake.settings.lake / "warehouse").rglob("*.parquet") if "transcripts" in str(path)]
    for path in sorted(away, key=lambda path: path.stat().st_mtime)[1:]:
        path.unlink()
    assert len(lake.trace("e1").derived) == 2
