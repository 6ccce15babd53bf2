"""A table and an object as a page shows them: from metadata and the tables alone, without a JVM."""

from pathlib import Path

import pytest
from lakes import CALL_BYTES, parts_of, small_lake

from headwater import lake as lakes
from headwater.domain.pointer import Pointer
from headwater.domain.tables import MESSAGES
from headwater.errors import NotFound
from headwater.upkeep.object_view import ObjectBytes


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_lake(tmp_path_factory.mktemp("views") / "lake")


def test_a_table_tells_its_columns_files_and_snapshots(directory: Path) -> None:
    with lakes.open(directory) as lake:
        about = lake.table("messages").about()
        rows = len(lake.table("messages").to_arrow())
    assert (about["table"], about["rows"]) == ("silver.messages", rows)
    assert [column["name"] for column in about["columns"]] == list(MESSAGES.schema.names)
    assert sum(size["files"] for size in about["sizes"]) == about["files"] > 0
    latest = about["snapshots"][0]
    assert latest["refs"] == ["main"] and latest["total_records"] == rows
    assert about["target_bytes"] == 256 << 20


def test_an_object_is_seen_with_what_was_made_of_it_and_read_from_anywhere(directory: Path) -> None:
    with lakes.open(directory) as lake:
        (row,) = lake.ls(limit=1)["objects"]
        seen, traced = lake.view(row["id"]), lake.trace(row["id"])
        assert {name: seen[name] for name in ("object", "event", "vectors")} == {
            name: traced[name] for name in ("object", "event", "vectors")
        }
        assert seen["derived"] == traced["derived"]
        texts = [text for text in seen["texts"] if text["active"]]
        assert texts and texts[0]["text"]
        opened = lake.open_object(row["id"], customer=row["customer"])
        whole = b"".join(lake.get(row["id"]))
        assert opened.size == len(whole)
        assert b"".join(opened.read()) == whole
        assert b"".join(opened.read(2, 3)) == whole[2:5]
        for ask in (lake.open_object, lake.view):
            with pytest.raises(NotFound):
                ask(row["id"], customer="somebody else")


def test_an_object_that_is_a_stretch_of_a_larger_one_is_read_from_where_it_begins(directory: Path) -> None:
    with lakes.open(directory) as lake:
        store = parts_of(lake).raw_store
        store.put_bytes("images/acme/2026-03-01/packed.bin", b"before" + CALL_BYTES + b"after", "audio/wav")
        pointer = Pointer("images/acme/2026-03-01/packed.bin", len(CALL_BYTES), "audio/wav", "", offset=6)
        packed = ObjectBytes("packed", "acme", "audio", pointer, len(CALL_BYTES), store)
        assert b"".join(packed.read()) == CALL_BYTES
        assert b"".join(packed.read(2, 3)) == CALL_BYTES[2:5]
