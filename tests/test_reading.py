"""Reading without a JVM: the same rows by every path, and a stranger's SQL reaches the tables alone."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import LongType, StringType
from sample_rows import NOON, append, rows, take_in

from headwater import settings as settings_module
from headwater.domain import tables
from headwater.errors import InvalidRequest, NotFound
from headwater.settings import Settings
from headwater.storage.query import reader as reading
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.row_filter import Between
from headwater.storage.tables.schema_evolution import add_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = settings_module.resolve(tmp_path / "lake", {}, {}, {})
    catalog = catalogs.open_catalog(settings)
    catalogs.create_tables(catalog)
    messages = catalogs.load(catalog, "messages")
    for day in range(3):
        given: list[dict[str, Any]] = [
            {"object_id": f"chat/{who}/{day}", "customer": who, "text": f"{who} says {day}", "model": "inline",
             "segments": [], "occurred_at": NOON + timedelta(days=day)}
            for who in ("acme", "o'neil")
        ]  # fmt: skip
        append(messages, rows(tables.MESSAGES, given, first_seq=2 * day))
    return settings


@pytest.fixture
def reader(settings: Settings) -> catalogs.Tables:
    return catalogs.open_reader(settings)


def test_a_scan_gives_the_rows_that_match_in_the_tables_own_types(reader: catalogs.Tables) -> None:
    found = reading.scan(reader, "messages", ["seq", "customer", "pointer"], {"customer": "o'neil"})
    assert found.schema.equals(tables.MESSAGES.schema.empty_table().select(["seq", "customer", "pointer"]).schema)
    assert sorted(found["seq"].to_pylist()) == [1, 3, 5]
    assert reading.scan(reader, "messages", ["seq"], {"seq": Between(2, 4)})["seq"].to_pylist() == [2, 3]
    assert sorted(reading.scan(reader, "messages", ["seq"], {"seq": {0, 5}})["seq"].to_pylist()) == [0, 5]
    assert reading.scan(reader, "messages", ["seq"], {"seq": set()}).num_rows == 0
    assert reading.scan(reader, "messages", limit=2).num_rows == 2


def test_a_scan_plans_only_the_files_that_can_hold_the_rows(reader: catalogs.Tables) -> None:
    messages = catalogs.load(reader, "messages")
    assert len(reading.plan(messages, {})) == 3
    assert len(reading.plan(messages, {"seq": Between(4, None)})) == 1
    assert len(reading.plan(messages, {"object_id": "chat/acme/0"})) == 1
    assert len(reading.plan(messages, {"occurred_at": Between(NOON + timedelta(days=1), None)})) == 2


def test_the_reader_and_the_catalog_see_the_same_rows(settings: Settings, reader: catalogs.Tables) -> None:
    by_reader = reading.scan(reader, "messages").sort_by("seq")
    by_iceberg = catalogs.load(catalogs.open_catalog(settings), "messages").scan().to_arrow().sort_by("seq")
    for ours, theirs in zip(by_reader.to_pylist(), by_iceberg.to_pylist(), strict=True):
        assert ours == theirs


def test_columns_that_came_went_and_changed_are_read_in_old_and_new_files(
    settings: Settings, reader: catalogs.Tables
) -> None:
    messages = catalogs.load(catalogs.open_catalog(settings), "messages")
    with messages.update_schema() as update:
        update.add_column("mood", StringType())
        update.add_column(("pointer", "tier"), StringType())
        update.rename_column("text", "words")
        update.rename_column(("pointer", "checksum"), "digest")
        update.move_first(("pointer", "size"))
        update.update_column("attempts", LongType())
    with messages.update_schema() as update:
        update.delete_column("language")
    with messages.update_schema() as update:
        update.add_column("language", StringType())  # of the same name, and another column
    late = {"object_id": "chat/acme/9", "customer": "acme", "model": "inline", "segments": [], "attempts": 7}
    given = rows(tables.MESSAGES, [late], first_seq=6).rename_columns(
        ["words" if name == "text" else name for name in tables.MESSAGES.schema.names]
    )
    append(messages.refresh(), given.drop_columns(["pointer", "segments"]).append_column(*_pointer(messages)))
    told = {"words": None, "mood": None, "language": None, "attempts": 7, "path": "p", "tier": "hot", "digest": "c"}
    query = "select words, mood, language, attempts, pointer.path, pointer.tier, pointer.digest from messages"
    new, *old = reading.run_sql(reader, f"{query} order by seq desc")["rows"]
    assert new == told
    assert {row["digest"] for row in old} == {"ab" * 32}
    assert [row["words"] for row in old] == [f"{who} says {day}" for day in (2, 1, 0) for who in ("o'neil", "acme")]
    assert {(row["mood"], row["language"], row["tier"]) for row in old} == {(None, None, None)}
    assert reading.scan(reader, "messages", ["seq", "mood"], {"seq": 6})["mood"].to_pylist() == [None]
    assert_equal_to_pyiceberg(settings, reader)


def _pointer(messages: IcebergTable) -> tuple[pa.Field, pa.Array]:
    field = schema_to_pyarrow(messages.refresh().schema()).field("pointer")
    pointer = {"path": "p", "offset": 0, "size": 1, "content_type": "t", "digest": "c", "tier": "hot"}
    return field, pa.array([pointer], field.type)


def assert_equal_to_pyiceberg(settings: Settings, reader: catalogs.Tables) -> None:
    by_reader = reading.scan(reader, "messages").sort_by("seq")
    by_pyiceberg = catalogs.load(catalogs.open_catalog(settings), "messages").scan().to_arrow().sort_by("seq")
    assert by_reader.column_names == by_pyiceberg.column_names
    for ours, theirs in zip(by_reader.to_pylist(), by_pyiceberg.to_pylist(), strict=True):
        assert ours == theirs


def test_files_that_others_wrote_are_read_by_their_names(settings: Settings, reader: catalogs.Tables) -> None:
    messages = catalogs.load(catalogs.open_catalog(settings), "messages")
    given = {"object_id": "chat/acme/7", "customer": "acme", "text": "taken in", "model": "inline", "segments": []}
    taken = rows(tables.MESSAGES, [given], first_seq=6)
    take_in(messages, taken.drop_columns(["tokens"]))
    with messages.update_schema() as update:
        update.add_column("mood", StringType())
    query = "select text, tokens, mood from messages where object_id = 'chat/acme/7'"
    assert reading.run_sql(reader, query)["rows"] == [{"text": "taken in", "tokens": None, "mood": None}]
    assert reading.run_sql(reader, "select count(*) as n from messages")["rows"] == [{"n": 7}]
    assert_equal_to_pyiceberg(settings, reader)


def test_what_the_engine_would_misread_is_read_by_pyiceberg(settings: Settings, reader: catalogs.Tables) -> None:
    """Files without numbers, and a name that meant another column when they were taken in."""
    messages = catalogs.load(catalogs.open_catalog(settings), "messages")
    given = {"object_id": "chat/acme/7", "customer": "acme", "text": "taken in", "model": "inline", "segments": []}
    take_in(messages, rows(tables.MESSAGES, [given], first_seq=6))
    with messages.update_schema() as update:
        update.rename_column("text", "words")
    with messages.update_schema() as update:
        update.add_column("text", StringType())
    query = "select text, words from messages where seq in (0, 6) order by seq"
    # By its name, what was taken in is of the new column; by their numbers, the others are of the old one.
    told = [{"text": None, "words": "acme says 0"}, {"text": "taken in", "words": None}]
    assert reading.run_sql(reader, query)["rows"] == told
    assert_equal_to_pyiceberg(settings, reader)


def test_rows_that_a_delete_file_names_are_left_out(spark: "SparkSession", settings: Settings) -> None:
    reader = catalogs.open_reader(settings)
    spark.sql("alter table lake.silver.messages set tblproperties ('write.delete.mode' = 'merge-on-read')")
    for where in ("customer = 'acme' and seq < 4", "seq = 5"):
        spark.sql(f"delete from lake.silver.messages where {where}")
    loaded = catalogs.load(reader, "messages")
    assert any(task.delete_files for task in reading.plan(loaded, {})), "nothing was merged on read"
    assert sorted(reading.scan(reader, "messages")["seq"].to_pylist()) == [1, 3, 4]
    query = "select customer, count(*) as n from messages where seq > 0 group by 1 order by 1"
    assert reading.run_sql(reader, query)["rows"] == [{"customer": "acme", "n": 1}, {"customer": "o'neil", "n": 2}]
    assert_equal_to_pyiceberg(settings, reader)


@pytest.mark.parametrize("changed", ["upgraded", "deleted from"])
def test_a_table_that_was_changed_is_still_read_quickly(
    request: pytest.FixtureRequest, settings: Settings, changed: str
) -> None:
    """That is, by the engine, which reads what it needs; PyIceberg's own reader would load Arrow's data sets."""
    if changed == "upgraded":
        add_columns(catalogs.open_catalog(settings), "silver.messages", [pa.field("mood", pa.string())])
    else:
        spark = request.getfixturevalue("spark")
        spark.sql("alter table lake.silver.messages set tblproperties ('write.delete.mode' = 'merge-on-read')")
        spark.sql("delete from lake.silver.messages where seq = 3")
    assert modules_after_reading(settings, "pyarrow.dataset", "pyiceberg.io.pyarrow") == "[]"


def test_sql_answers_with_columns_and_plain_rows(reader: catalogs.Tables) -> None:
    answer = reading.run_sql(
        reader,
        "select text, occurred_at, pointer.size from silver.messages where customer = 'acme' order by seq limit 1",
    )
    assert answer["columns"] == ["text", "occurred_at", "size"]
    assert answer["rows"] == [{"text": "acme says 0", "occurred_at": "2026-03-01T12:00:00.000Z", "size": 3}]
    odd = (
        "select 1.5::decimal(4,2) a, 'x'::blob b, [date '2026-01-02'] c, interval 1 day d, uuid() e, map{'k': now()} f"
    )
    json.dumps(reading.run_sql(reader, odd))


def test_sql_knows_every_table_even_an_empty_one(reader: catalogs.Tables) -> None:
    for table in tables.TABLES:
        for name in (table.name, table.short_name, f'"{table.short_name.upper()}"'):
            assert "seq" in reading.run_sql(reader, f"select * from {name} limit 0")["columns"]
    shown = {f"{row['schema']}.{row['name']}" for row in reading.run_sql(reader, "show all tables")["rows"]}
    assert {table.name for table in tables.TABLES} <= shown


def test_an_unknown_table_is_not_found_and_names_the_nearest(reader: catalogs.Tables) -> None:
    with pytest.raises(NotFound, match=r"Did you mean (silver\.)?transcripts"):
        reading.run_sql(reader, "select * from transcript")
    with pytest.raises(InvalidRequest, match="nonsense"):
        reading.run_sql(reader, "select nonsense from messages")


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_text('{secret}')",
        "select * from '{secret}'",
        "select * from read_csv('{secret}')",
        "select * from glob('/*')",
        "copy messages to '{secret}'",
        "attach '{secret}' as other",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "create table x as select 1",
        "insert into messages select * from messages",
        "drop view messages",
        "pragma database_list",
        "select 1; copy (select 1) to '{secret}'",
        "with x as (select * from read_blob('{secret}')) select * from x",
        "select * from query('select * from read_text(''{secret}'')')",
        "",
        "not sql at all",
    ],
)
def test_sql_only_reads_and_only_the_tables(reader: catalogs.Tables, tmp_path: Path, query: str) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidRequest):
        reading.run_sql(reader, query.format(secret=secret))
    assert secret.read_text() == "a,b\n1,2\n"


def test_reading_loads_neither_a_jvm_nor_pandas_nor_sqlalchemy(settings: Settings) -> None:
    assert modules_after_reading(settings, "pyspark", "py4j", "pandas", "sqlalchemy") == "[]"


def modules_after_reading(settings: Settings, *names: str) -> str:
    """Which of these were loaded by reading the table in both ways."""
    code = (
        "import sys; from pathlib import Path; from headwater import settings;"
        "from headwater.storage.query import reader as reading; from headwater.storage.tables import catalog;"
        f"reader = catalog.open_reader(settings.resolve(Path({str(settings.lake)!r}), {{}}, {{}}, {{}}));"
        "reading.scan(reader, 'messages'); reading.run_sql(reader, 'select count(*) from messages');"
        f"print([name for name in {names!r} if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return answer.stdout.strip()
