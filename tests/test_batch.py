"""What one batch takes: in order, as much as fits, and never nothing where there is something."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lakes import parts_of
from sample_rows import rows

from headwater import lake as lakes
from headwater.domain.tables import EMBEDDINGS, EVENTS, MESSAGES, Table
from headwater.flow.derive import batch as batches
from headwater.flow.derive.batch import next_batch
from headwater.flow.embed.texts import next_texts
from headwater.flow.index import index_next
from headwater.flow.rows import BatchLimit
from headwater.lake import Lake
from headwater.storage.tables.writer import TableWriter

MANY = BatchLimit(rows=1_000, bytes=1 << 40)


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    with lakes.init(tmp_path / "lake") as made:
        yield made


def add(lake: Lake, table: Table, given: list[dict[str, Any]]) -> None:
    named = [{"event_id": f"e{number:03}", "object_id": f"o{number:03}", "customer": "acme", **row}
             for number, row in enumerate(given)]  # fmt: skip
    writer(lake).publish(table, rows(table, named).select(table.columns), {}, stage="test")


def writer(lake: Lake) -> TableWriter:
    return TableWriter(lake.spark, lake.settings)


def event(size: int, modality: str = "audio", text: str | None = None, **more: Any) -> dict[str, Any]:
    pointer = {"path": "x", "offset": 0, "size": size, "content_type": "", "checksum": "ab" * 32}
    return {"modality": modality, "pointer": pointer, "text": text, **more}


def taken(lake: Lake, begin: int, cut: BatchLimit, until: int | None = None) -> tuple[int, int] | None:
    batch = next_batch(writer(lake), begin, cut, until)
    return (batch.end, len(batch.pending)) if batch else None


def test_a_batch_is_cut_by_rows_by_bytes_and_by_where_it_may_go(lake: Lake) -> None:
    add(lake, EVENTS, [event(10), event(500), event(10), event(10, first_of_object=False), event(10)])
    assert taken(lake, 0, MANY) == (5, 4)  # one tells of an object that is known
    assert taken(lake, 0, BatchLimit(2, 1 << 40)) == (2, 2)
    assert taken(lake, 0, MANY, until=3) == (3, 3)
    assert taken(lake, 0, BatchLimit(1_000, 100)) == (1, 1)
    assert taken(lake, 1, BatchLimit(1_000, 100)) == (2, 1)  # too large by itself, and taken all the same
    assert taken(lake, 2, BatchLimit(1_000, 100)) == (5, 2)
    assert taken(lake, 5, MANY) is None


def test_what_an_event_says_of_its_size_is_not_trusted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_TEXT_BYTES", 25_000)
    add(lake, EVENTS, [event(5), event((1 << 63) - 1), event(5), event((1 << 63) - 1)])
    assert taken(lake, 0, MANY) == (1, 1)
    assert taken(lake, 1, MANY) == (2, 1)
    add(lake, EVENTS, [event(0, "chat", letter * 10_000, event_id=f"chat {letter}") for letter in "abcd"])
    assert taken(lake, 4, MANY) == (6, 2)


def test_long_messages_are_read_whole_and_only_those_of_the_batch(lake: Lake) -> None:
    add(
        lake,
        EVENTS,
        [event(1, "chat", "short"), event(1, "chat", "long " * 4_000), event(1, "chat", "too far " * 4_000)],
    )
    batch = next_batch(writer(lake), 0, BatchLimit(1_000, 30_000))
    assert batch is not None and batch.end == 2
    assert batch.pending["text"].to_pylist() == ["short", "long " * 4_000]


def test_texts_are_taken_up_to_so_many_vectors_and_long_ones_whole(lake: Lake) -> None:
    said = ["short", "words " * 1_000, "more words " * 1_000, "the end"]
    add(lake, MESSAGES, [{"text": text, "segments": None} for text in said])
    assert _said(lake, 0, 1_000) == (said, 4)
    assert _said(lake, 0, 10) == (said[:2], 2)
    assert _said(lake, 2, 1) == (said[2:3], 3)


def _said(lake: Lake, begin: int, vectors: int) -> tuple[list[str], int]:
    texts, ends = next_texts(writer(lake), {MESSAGES: (begin, 4)}, vectors)
    return sorted(texts["text"].to_pylist(), key=[*texts["text"].to_pylist()].index), ends[MESSAGES]


def test_rows_that_are_given_twice_are_new_once(lake: Lake) -> None:
    add(lake, MESSAGES, [{"text": "known", "step": "message", "fingerprint": "f"}])
    twice = [{"object_id": name, "step": "message", "fingerprint": "f"} for name in ("o000", "o001", "o001")]
    new = writer(lake).not_yet_in(MESSAGES, rows(MESSAGES, twice).select(MESSAGES.columns), MESSAGES.key)
    assert new["object_id"].to_pylist() == ["o001"]


def test_an_index_that_begins_with_a_gap_is_built_all_the_same(lake: Lake) -> None:
    """A retired model's vectors were the first ones, and the index was wiped."""
    vectors = [{"chunk_id": f"c{number}", "vector": [1.0, float(number)], "fingerprint": "f"} for number in range(6)]
    add(lake, EMBEDDINGS, vectors)
    lake.spark.sql(f"DELETE FROM lake.{EMBEDDINGS.name} WHERE seq < 4")
    index = parts_of(lake).index
    assert index_next(writer(lake), parts_of(lake).ledger, index, batch_rows=2) == 2
    assert index.position() == 6
    assert index_next(writer(lake), parts_of(lake).ledger, index, batch_rows=2) is None
    add(lake, EMBEDDINGS, vectors)
    lake.spark.sql(f"DELETE FROM lake.{EMBEDDINGS.name} WHERE seq >= 6")
    assert index_next(writer(lake), parts_of(lake).ledger, index, batch_rows=2) is None
    assert index.position() == 12  # a gap at the end is followed too, else it would seem to be behind for ever
    lake.spark.sql(f"DELETE FROM lake.{EMBEDDINGS.name} WHERE seq >= 0")
    index.delete(None)
    assert index_next(writer(lake), parts_of(lake).ledger, index, batch_rows=2) is None


def test_segments_that_the_driver_writes_are_read_by_everybody(lake: Lake) -> None:
    segment = {"text": "hello", "locator": None}
    kind = MESSAGES.schema.field("segments").type.value_type
    segment = {field.name: segment.get(field.name) for field in kind}
    add(lake, MESSAGES, [{"text": "hello", "segments": [segment, segment]}, {"text": "", "segments": []}])
    by_spark = lake.spark.table(f"lake.{MESSAGES.name}").orderBy("seq").toArrow()["segments"].to_pylist()
    by_pyiceberg = lake.table("messages", all_models=True).to_arrow().sort_by("seq")["segments"].to_pylist()
    assert by_spark == by_pyiceberg == [[segment, segment], []]
    assert isinstance(lake.table("messages", all_models=True).to_arrow(), pa.Table)
