"""A lake that the version before wrote: upgraded, its answers kept, and models of now brought in beside its own."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from former_lake import CALL, CHAT, FORMAT, HEARD, READ, former_lake

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.components import Components
from headwater.domain.locator import LOCATOR_TYPE, SEGMENT_TYPE
from headwater.domain.tables import TABLES, TEXT_TABLES
from headwater.errors import Conflict
from headwater.settings import load
from headwater.storage.tables.read_progress import read_progress
from headwater.upkeep.format import FORMAT as TODAY

TEXTS = {HEARD, READ, CHAT}
NOW = {"transcribe": "moonshine", "caption": "pp-ocr", "embed": "static"}


@pytest.fixture
def former(tmp_path: Path) -> Path:
    return former_lake(tmp_path / "lake")


def texts(lake: lakes.Lake) -> set[str]:
    return {str(text) for table in TEXT_TABLES for text in lake.table(table.name).to_arrow()["text"].to_pylist()}


def found(lake: lakes.Lake, query: str) -> list[dict[str, Any]]:
    """What an answer says of its hits, but how it scores them."""
    hits = lake.search(query).to_dict()["hits"]
    return [{name: hit[name] for name in ("id", "text", "model", "customer", "modality", "pointer")} for hit in hits]


def test_a_run_refuses_the_lake_as_it_was_and_names_the_way(former: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["run", "--once"], ["search", "refund"], ["replay", "transcribe", "--model", "moonshine"]):
        assert main(["--lake", str(former), *command]) == Conflict.exit_code
        told = capsys.readouterr().err
        assert f"This lake has format {FORMAT} and must be upgraded to {TODAY} first: headwater upgrade" in told


def test_who_reads_goes_on_reading_while_it_is_upgraded(former: Path) -> None:
    """Who opened the lake before; `lakes.open` itself would refuse it."""
    reader = lakes.Lake(Components(load(former)))
    with reader:
        before, traced = texts(reader), reader.trace(CALL)
        assert before == TEXTS
        assert main(["--lake", str(former), "upgrade"]) == 0
        assert texts(reader) == before
        again = reader.trace(CALL)
        assert again["derived"] == traced["derived"]
        assert [vector["locator"] for vector in again["vectors"]] == [vector["locator"] for vector in traced["vectors"]]
        # The index is a view and empty by now: it says so, and what to do is told.
        answer = reader.search("refund")
        assert answer.hits == () and answer.stale_by == 3


def test_rows_are_read_by_who_knows_a_column_less_or_more(former: Path) -> None:
    """A process of the version before casts what it reads to the columns that it knows, and so do we."""
    for kind in (LOCATOR_TYPE, SEGMENT_TYPE):
        known = pa.struct([field for field in kind if field.name not in {"speaker", "section"}])
        row = pa.array([{"start_ms": 7}], kind)
        assert row.cast(known).cast(kind).to_pylist() == row.to_pylist()


def test_columns_stand_in_the_order_of_a_new_lake_and_nothing_was_rewritten(former: Path, tmp_path: Path) -> None:
    files = sorted((former / "warehouse").rglob("*.parquet"))
    seqs = {table.name: read_progress(load(former), table).next_seq for table in TEXT_TABLES}
    assert main(["--lake", str(former), "upgrade"]) == 0
    assert sorted((former / "warehouse").rglob("*.parquet")) == files
    with lakes.open(former) as lake, lakes.init(tmp_path / "new") as new:
        for table in TABLES:
            one, other = (Components(each.settings).reader.load_table(table.name).schema() for each in (lake, new))
            assert _shape(one.as_struct()) == _shape(other.as_struct()), table.name
        assert {table.name: read_progress(lake.settings, table).next_seq for table in TEXT_TABLES} == seqs


def _shape(kind: Any) -> Any:
    """Names and types without numbers."""
    inner = getattr(kind, "element_type", kind)
    fields = getattr(inner, "fields", None)
    return [(field.name, _shape(field.field_type)) for field in fields] if fields else str(inner)


def test_it_is_upgraded_keeps_its_answers_is_replayed_to_the_models_of_now_flips_and_flips_back(
    former: Path, engine: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with (former / "headwater.toml").open("a") as file:
        file.write('[speech]\nchannel_names = "customer, support"\n')
    assert main(["--lake", str(former), "upgrade"]) == 0
    with lakes.open(former) as lake:
        lake.run()
        assert texts(lake) == TEXTS
        before = {query: found(lake, query) for query in ("money back", "payment details", "invoice")}
        assert [hits[0]["text"] for hits in before.values()] == [HEARD, " ".join(READ.split()), CHAT]
        then = {step: lake.models.book().find(step, "ACTIVE").name for step in NOW}

        for step, model in NOW.items():
            assert lake.models.replay(step, model).finished
        assert {query: found(lake, query) for query in before} == before, "beside, they are seen by nobody"

        for step, model in NOW.items():
            lake.models.activate(step, model)
        (row,) = lake.sql("select text, segments from transcripts")["rows"]
        assert row["text"].startswith("I would like to cancel my order")
        assert texts(lake) & TEXTS == {READ, CHAT}
        assert found(lake, "money back")[0]["model"].startswith("moonshine")
        # What was one mixed voice is two, each with what it said: in the tables, in a hit, in a trace, as a filter.
        assert [(part["speaker"], part["text"].split()[0]) for part in row["segments"]] == [
            ("customer", "I"),
            ("support", "The"),
        ]
        for speaker, word in (("customer", "order"), ("support", "update")):
            (hit,) = lake.search(word, speaker=speaker).hits
            assert hit.to_dict()["locator"]["speaker"] == speaker and word in hit.entry.text
        capsys.readouterr()
        assert main(["--lake", str(former), "search", "order", "--speaker", "customer"]) == 0
        assert " customer  moonshine" in capsys.readouterr().out
        assert main(["--lake", str(former), "trace", CALL]) == 0
        traced = capsys.readouterr().out
        assert " customer  in the index" in traced and " support  in the index" in traced

        for step, model in then.items():
            lake.models.activate(step, model)
        assert texts(lake) == TEXTS
        assert {query: found(lake, query) for query in before} == before
