"""A selection as files: whole, with its bytes and rows, told by a manifest; a second time it is the same."""

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from calling import answer
from lakes import CALL, CALL_BYTES, CHAT, SCREEN, small_lake

from headwater import lake as lakes
from headwater.domain.tables import EVENTS, TRANSCRIPTS
from headwater.errors import Conflict, DataFault


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_lake(tmp_path_factory.mktemp("export") / "lake")


def files_of(place: Path) -> dict[str, str]:
    found = (path for path in place.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {path.relative_to(place).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_what_is_chosen_is_there_with_its_bytes_rows_and_sums(directory: Path, tmp_path: Path, form: str) -> None:
    place = tmp_path / "acme"
    with lakes.open(directory) as lake:
        lake.label(CALL, {"mood": "calm"}, by="Ada")
        made = lake.export(place, customer="acme", form=form, vectors=True)
        assert (made.changed, made.objects, made.bytes, made.missing) == (True, 2, len(CALL_BYTES), [])
        events = lake.sql("select * from events where customer = 'acme' order by seq")["rows"]
        said = lake.sql("select * from transcripts")["rows"]
    assert (place / "raw" / CALL).read_bytes() == CALL_BYTES and not (place / "raw" / SCREEN).exists()
    manifest = json.loads((place / "manifest.json").read_text())
    assert {file["path"]: file["sha256"] for file in manifest["files"]} == files_of(place)
    assert manifest["selection"]["customer"] == "acme"
    table, texts = (place / "tables" / f"{name}.{form}" for name in (EVENTS.name, TRANSCRIPTS.name))
    if form == "jsonl":
        assert [json.loads(line) for line in table.read_text().splitlines()] == events
        assert [json.loads(line) for line in texts.read_text().splitlines()] == said
        (label,) = map(json.loads, (place / "tables" / "labels.jsonl").read_text().splitlines())
        assert (label["object_id"], label["key"], label["value"]) == (CALL, "mood", "calm")
    else:
        rows = pq.read_table(table).to_pylist()
        assert [row["object_id"] for row in rows] == [CALL, CHAT] and pq.read_schema(table).names == EVENTS.schema.names
        assert [row["text"] for row in pq.read_table(texts).to_pylist()] == [row["text"] for row in said]
    assert list(tmp_path.iterdir()) == [place], "nothing is left beside it"


def test_a_second_export_changes_nothing_and_another_selection_replaces_the_first(
    directory: Path, tmp_path: Path
) -> None:
    place = tmp_path / "some"
    (tmp_path / ".some.part" / "raw").mkdir(parents=True)  # of one that was killed
    with lakes.open(directory) as lake:
        assert lake.export(place, customer="acme").changed
        before = files_of(place), (place / "manifest.json").stat().st_mtime_ns
        assert not lake.export(place, customer="acme").changed
        assert (files_of(place), (place / "manifest.json").stat().st_mtime_ns) == before
        assert lake.export(place, modality="chat").changed
        assert not (place / "raw").exists() and list(tmp_path.iterdir()) == [place]
        (place / "notes.md").write_text("what we found")
        with pytest.raises(Conflict, match=r"also holds notes\.md"):
            lake.export(place, customer="acme")
        assert (place / "notes.md").read_text() == "what we found"
        mine = tmp_path / "mine"
        mine.mkdir()
        (mine / "thesis.txt").write_text("years of work")
        with pytest.raises(Conflict, match="is no export"):
            lake.export(mine)
        assert (mine / "thesis.txt").read_text() == "years of work"


def test_bytes_that_are_damaged_or_gone_are_told_and_the_rest_is_there(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = answer(capsys, "export", tmp_path / "all", "--json", "--lake", directory)
    assert told.code == DataFault.exit_code
    (missing,) = told.json["missing"]
    assert (missing["path"], missing["reason"]) == (SCREEN, "CORRUPT"), "its event tells of other bytes"
    assert (tmp_path / "all" / "raw" / CALL).read_bytes() == CALL_BYTES
    shown = answer(capsys, "export", tmp_path / "all", "--lake", directory)
    assert "as before" in shown.out and SCREEN in shown.out
