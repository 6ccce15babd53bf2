"""Reading without a JVM: the same rows by every path, and a stranger's SQL reaches the tables alone."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sample_rows import NOON, append, rows

from headwater import settings as settings_module
from headwater.domain import tables
from headwater.errors import InvalidRequest, NotFound
from headwater.settings import Settings
from headwater.storage import catalog as catalogs
from headwater.storage import reading
from headwater.storage.where import Between


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


def test_a_column_added_later_is_read_in_old_and_new_files(settings: Settings, reader: catalogs.Tables) -> None:
    from pyiceberg.types import StringType

    with catalogs.load(catalogs.open_catalog(settings), "messages").update_schema() as update:
        update.add_column("mood", StringType())
    assert reading.scan(reader, "messages", ["seq", "mood"])["mood"].to_pylist() == [None] * 6
    assert reading.run_sql(reader, "select count(*) as n, count(mood) as m from messages")["rows"] == [{"n": 6, "m": 0}]


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
    code = (
        "import sys; from pathlib import Path; from headwater import settings;"
        "from headwater.storage import catalog, reading;"
        f"reader = catalog.open_reader(settings.resolve(Path({str(settings.lake)!r}), {{}}, {{}}, {{}}));"
        "reading.scan(reader, 'messages'); reading.run_sql(reader, 'select count(*) from messages');"
        "print([name for name in ('pyspark', 'py4j', 'pandas', 'sqlalchemy') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
