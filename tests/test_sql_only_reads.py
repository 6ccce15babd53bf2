"""SQL only reads: whatever the statement, no byte of the lake changes, no file appears, no other file is read.

Every statement is tried twice: at the front door, `lake.sql`, which refuses it in a sentence; and behind it, on the
engine that would run it if the door were fooled.
"""

import hashlib
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import duckdb
import pytest
from lakes import parts_of, small_lake

from headwater import lake as lakes
from headwater.errors import InvalidRequest, NotFound
from headwater.lake import Lake
from headwater.storage.query import reader as reading
from headwater.storage.query.statement import parse

SECRET = "the secret of this machine"
# What cannot be written as text, or is another kind when it is: ANALYZE is a VACUUM, SET VARIABLE a SET.
UNSPOKEN = {"INVALID", "RELATION", "LOGICAL_PLAN", "EXTENSION", "CREATE_FUNC", "ANALYZE", "VARIABLE_SET"}
# {file} is a data file of the lake, {ours} its name for the engine, {new} a file that is not there, {secret} one that
# is no business of the lake's.
WRITES = [
    "copy (select 1 as a) to '{file}'", "copy (select 1 as a) to '{ours}'", "copy messages to '{new}'",
    "copy (select 1 as a) to '{file}' (format csv)", "copy (select 1 as a) to '{ours}' (format parquet)",
    "copy (select 1 as a) to '{file}' (format parquet, use_tmp_file false)",
    "copy (select 1 as a) to '{ours}' (format csv, use_tmp_file false)",
    "copy (select 1 as a) to '{new}' (format parquet, partition_by (a))",
    "copy (select 1 as a) to '{new}' (format json, use_tmp_file false, overwrite_or_ignore true)",
]  # fmt: skip
WRAPPED = [
    "explain analyze {}", "explain (analyze) {}", "explain {}", "explain analyze /* */ {}", "/**/ explain analyze {}",
    "with x as ({}) select 1", "with x as ({}) select * from x", "with x as materialized ({}) select 1 from x",
    "explain analyze with x as ({}) select 1", "select 1; {}", "prepare p as {}",
    "select * from (with x as ({}) from x)",
    "with a as (select 1), b as (with x as ({}) select 1) select * from a, b", "summarize with x as ({}) from x",
    "select (with x as ({}) select 1)", "values ((with x as ({}) select 1))",
]  # fmt: skip
STATEMENTS = [
    *WRITES,
    "create table t as select * from messages", "create or replace view messages as select 1", "create schema s",
    "create temp table t (a int)", "create sequence s", "create type mood as enum ('a')", "create index i on t (a)",
    "create macro m(a) as a", "create macro m(a) as table select * from read_text('{secret}')",
    "create secret s (type s3, key_id 'a', secret 'b')", "create persistent secret s (type s3, key_id 'a', secret 'b')",
    "insert into messages select * from messages", "insert into silver.messages values (1)", "truncate messages",
    "update messages set text = 'x'", "delete from messages", "drop view messages", "drop schema silver cascade",
    "merge into messages using events on true when matched then delete", "alter view messages rename to m",
    "comment on view messages is 'x'", "attach '{new}' as other", "attach '{file}' as other",
    "attach '{ours}' as other",
    "attach ':memory:' as other", "detach memory", "use memory", "copy from database memory to memory",
    "copy from database memory to memory (schema)", "copy from database memory to memory (data)",
    "export database '{new}'", "import database '{new}'", "install httpfs", "load httpfs", "load '{secret}'",
    "force install httpfs from 'http://127.0.0.1:9'", "update extensions",
    "set enable_external_access = true", "set allowed_paths = ['{secret}']", "set temp_directory = '{new}'",
    "set lock_configuration = false", "set log_query_path = '{new}'", "set profiling_output = '{new}'",
    "set global secret_directory = '{new}'", "reset enable_external_access", "set variable x = 1",
    "pragma enable_profiling = 'json'", "pragma database_list", "pragma profile_output = '{new}'",
    "pragma enable_logging", "pragma checkpoint_threshold = '1'", "call pragma_version()", "call enable_logging('all')",
    "call enable_logging(storage = 'file', storage_config = {{'path': '{new}'}})", "call read_text('{secret}')",
    "checkpoint", "force checkpoint", "vacuum", "vacuum analyze", "analyze", "begin", "commit", "rollback",
    "prepare p as select 1", "execute p", "deallocate p",
    "pivot messages on customer using count(*)", "with p as (pivot messages on customer using count(*)) from p",
    "with x as (insert into messages values (1) returning *) from x", "with x as (delete from messages) select 1",
    "with x as (update messages set text = 'x' returning text) from x",
    "select 1; select 2", "", ";", "-- nothing", "not sql at all",
]  # fmt: skip
# What reads the machine rather than the lake.
ELSEWHERE = [
    *(f"select * from {name}('{{secret}}')" for name in (
        "read_text", "read_blob", "read_csv", "read_csv_auto", "read_json", "read_json_auto", "read_json_objects",
        "read_ndjson", "read_ndjson_objects", "read_parquet", "parquet_scan", "parquet_metadata", "parquet_schema",
        "parquet_file_metadata", "parquet_kv_metadata", "sniff_csv", "glob", "read_duckdb", "query_table",
    )),
    "select * from '{secret}'", "from '{secret}'", "from \"{secret}\"", "select * from read_text(['{secret}'])",
    "select * from read_text('file://{secret}')", "select * from glob('/*')", "select * from glob('{lake}/**')",
    "select * from read_text('{ours}/../../{secret}')", "select * from read_text('lake://{secret}')",
    "select * from read_blob('{file}')", "select * from '{file}'", "select * from read_text('/proc/self/environ')",
    "select getenv('HOME')", "select current_setting('secret_directory')", "select * from duckdb_settings()",
    "select * from pg_catalog.pg_settings", "select * from pg_settings", "from system.pg_catalog.PG_Settings",
    "select * from duckdb_secrets()", "select * from duckdb_logs", "select * from duckdb_external_file_cache()",
    "select * from query('select * from read_text(''{secret}'')')", "select * from pragma_database_list",
    "select * from json_execute_serialized_sql(json_serialize_sql('select * from read_text(''{secret}'')'))",
    "select json_serialize_plan('select * from read_text(''{secret}'')')",
    "with x as (select * from read_blob('{secret}')) select * from x", "explain select * from read_text('{secret}')",
    "select * from messages where text in (select content from read_text('{secret}'))",
    "select (select content from read_text('{secret}'))", "describe select * from read_csv('{secret}')",
    "summarize '{secret}'", "describe '{secret}'", "from messages union all by name from read_csv('{secret}')",
    "select * from variable_of_this_process", "select * from pandas_scan(1)", "select * from arrow_scan(1, 2, 3)",
    "select * from enable_logging('all')", "select write_log('x')", "select * from checkpoint()",
    "with pg_settings as (select 1) select * from pg_catalog.pg_settings",
    "with pg_settings as (select 1) from pg_settings",
    "with duckdb_databases as (select 1) select * from main.duckdb_databases", "with t as (from duckdb_logs) from t",
    "with duckdb_databases as (select 1) select * from system.main.duckdb_databases",
    "with duckdb_databases as (select * from duckdb_databases) select * from duckdb_databases",
    "with a as (select * from duckdb_databases), duckdb_databases as (select 1) select * from a",
    "with recursive duckdb_logs as (from duckdb_logs union all from duckdb_logs where false) from duckdb_logs",
    "select * from (with duckdb_databases as (select 1) from duckdb_databases) x, duckdb_databases",
    "(with duckdb_databases as (select 1) from duckdb_databases) union all by name from duckdb_databases",
    "select (with duckdb_databases as (select 1) select 1) from DuckDB_Databases",
    "with duckdb_databases as (select 1) from (show duckdb_databases)",
    'with "duc\u212adb_databases" as (select 1) from duckdb_databases',
    "select * from information_schema.tables, pg_catalog.pg_settings", "from duckdb_tables(), duckdb_databases",
    "from duckdb_logs, (show tables)", "select *, (select count(*) from duckdb_tables) from sqlite_master",
]  # fmt: skip


class Site:
    """A lake, and what else is to be seen of a machine: a home, a directory to be in, a secret."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lake = small_lake(root / "lake")
        self.secret = root / "secret.csv"
        self.secret.write_text(f"a,b\n{SECRET},2\n")
        for name in ("home", "here"):
            (root / name).mkdir()
        for name in ("catalog.db", "ledger.db"):  # else whoever closes it last tidies it up
            with closing(sqlite3.connect(self.lake / name)) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.file = next((self.lake / "warehouse" / "silver" / "messages" / "data").rglob("*.parquet"))

    def filled(self, statement: str) -> str:
        ours = "lake://silver.messages/whole/000000.parquet"
        new = self.root / "here" / "new"
        return statement.format(file=self.file, ours=ours, new=new, secret=self.secret, lake=self.lake)

    def digest(self) -> dict[str, str]:
        """Every file there is; a catalog's own WAL comes and goes with who reads it."""
        files = [path for path in self.root.rglob("*") if path.is_file() and not re.search(r"-(wal|shm)$", path.name)]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("only-reads"))


@pytest.fixture
def lake(site: Site, opened: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """In a directory and with a home that must stay empty; at the end every byte must be what it was."""
    monkeypatch.chdir(site.root / "here")
    monkeypatch.setenv("HOME", str(site.root / "home"))
    before = site.digest()
    yield opened
    assert site.digest() == before
    assert not list((site.root / "here").iterdir()) and not list((site.root / "home").iterdir())


@pytest.fixture(scope="module")
def opened(site: Site) -> Iterator[Lake]:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(site.root / "here")
        patched.setenv("HOME", str(site.root / "home"))
        with lakes.open(site.lake) as lake:
            yield lake


def told(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    """All that can be learnt from it."""
    try:
        answer = connection.execute(text)
        return str(answer.fetchall()) if answer else ""
    except (duckdb.Error, RuntimeError) as error:
        return str(error)


def statements(site: Site) -> list[str]:
    nested = [wrap.format(write) for wrap in WRAPPED for write in (*WRITES, "delete from messages")]
    return [site.filled(statement) for statement in (*STATEMENTS, *nested)]


def test_every_kind_of_statement_that_the_engine_has_is_tried(site: Site) -> None:
    tried = set()
    for text in statements(site):
        with suppress(duckdb.Error, ValueError):  # not SQL; and some kinds have no name in Python
            tried |= {statement.type.name for statement in duckdb.extract_statements(text)}
    known = {name for name in dir(duckdb.StatementType) if name.isupper()}
    assert known - tried <= UNSPOKEN


def test_the_front_door_refuses_every_statement_that_does_not_only_read(site: Site, lake: Lake) -> None:
    for text in (*statements(site), *map(site.filled, ELSEWHERE)):
        with pytest.raises((InvalidRequest, NotFound)) as refused:
            lake.sql(text)
            pytest.fail(f"was let through: {text}")
        assert SECRET not in str(refused.value)


def test_behind_the_door_the_engine_writes_nothing_and_reads_nothing_else(site: Site, lake: Lake) -> None:
    variable_of_this_process = [SECRET]  # noqa: F841  the engine's Python client looks for such
    for text in (*statements(site), *map(site.filled, ELSEWHERE)):
        connection = reading.duck(parts_of(lake).reader, {"silver.messages"})
        answer = told(connection, text)
        connection.close()
        assert SECRET not in answer, text
        assert str(site.file) not in answer or str(site.file) in text, text


def test_one_engine_that_was_told_everything_at_once_still_cannot_write(site: Site, lake: Lake) -> None:
    """One statement may prepare the ground for the next."""
    connection = reading.duck(parts_of(lake).reader, {"silver.messages"})
    for text in statements(site) * 2:
        assert SECRET not in told(connection, text)
    connection.close()


def test_only_known_table_functions_can_be_called(lake: Lake) -> None:
    connection = duckdb.connect()
    query = "select distinct function_name from duckdb_functions() where function_type in ('table', 'table_macro')"
    names = [name for (name,) in connection.execute(query).fetchall()]
    let_through = set()
    for name in names:
        try:
            parse(connection, f'select * from "{name}"()')
            let_through.add(name)
        except InvalidRequest:
            continue
    assert let_through == {
        "duckdb_columns", "duckdb_functions", "duckdb_keywords", "duckdb_schemas", "duckdb_tables", "duckdb_types",
        "duckdb_views", "generate_series", "json_each", "json_tree", "pragma_version", "range", "repeat", "repeat_row",
        "unnest",
    }  # fmt: skip


def test_functions_that_look_beyond_their_arguments_are_known_one_by_one(lake: Lake) -> None:
    connection = duckdb.connect()
    query = (
        "select distinct function_name from duckdb_functions() where function_type in ('scalar', 'macro', 'aggregate') "
        "and (stability <> 'CONSISTENT' or has_side_effects)"
    )
    harmless = {
        "current_connection_id", "current_database", "current_date", "current_query", "current_query_id",
        "current_schema", "current_schemas", "current_transaction_id", "error", "gen_random_uuid", "get_current_time",
        "get_current_timestamp", "in_search_path", "now", "random", "setseed", "sleep_ms", "stats", "today",
        "transaction_timestamp", "txid_current", "uuid", "uuidv4", "uuidv7", "vector_type",
    }  # fmt: skip
    for (name,) in connection.execute(query).fetchall():
        if name not in harmless:
            with pytest.raises(InvalidRequest, match=name):
                parse(connection, f'select "{name}"(1)')


@pytest.mark.parametrize(
    "query",
    [
        "select * from messages", "from messages", "table messages", "values (1), (2)", "(select 1)", "select 1;",
        "with a as (select text from messages) select * from a", "select * from Silver.Messages", 'from "MESSAGES"',
        "with recursive t(n) as (select 1 union all select n + 1 from t where n < 5) select max(n) from t",
        "describe messages", "describe select * from messages", "show tables", "show all tables", "show messages",
        "summarize messages", "explain select * from messages", "explain analyze select * from messages",
        "/* why */ explain (format json) select 1 as a", "explain (select 1)", "-- a word\nselect 1", "from runs",
        "select m.text, e.text from messages m join events e using (event_id)", "select * from all_models.events",
        "select count(*) filter (where customer = 'acme') over (partition by modality order by seq) from events",
        "select * exclude (seq) replace (upper(text) as text) from messages order by all limit 1 offset 0",
        "select distinct on (customer) customer, [x for x in [1, 2]], {'a': 1}.a, text[1:2] from events",
        "select case when seq > 0 then 1.5::decimal(4, 2) end, seq between 1 and 2, text like 'a%' from events",
        "select list_transform([1, 2], lambda x: x + 1), interval 1 day, date '2026-01-01', cast('1' as int), try(1/0)",
        "select 1 union all select 2 intersect select 3 except (select 4)", "from range(3) t(i), unnest([1, 2]) u(j)",
        "pivot messages on customer in ('acme', 'globex') using count(*)", "from events natural join messages",
        "from events unpivot (v for n in (text, customer))", "select columns('t.*') from messages",
        "select exists (select 1 from messages), (select max(seq) from events)", "from events tablesample 50%",
        "select customer, count(*) from events group by rollup (customer) having count(*) > 0",
        "select table_name from information_schema.tables", "from duckdb_tables()", "select 'a' collate nocase < 'B'",
        "select * from messages, lateral (select messages.seq + 1) after", "select #1 from (select 1) order by 1",
        "from (values (1, 2)) v(a, b) select a, b", "select row_number() over () from messages",
        "from messages positional join events",
    ],
)  # fmt: skip
def test_what_only_reads_is_answered(lake: Lake, query: str) -> None:
    assert lake.sql(query)["columns"]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        # A name that a WITH gives may be a table's, which is meant in the WITH itself, before it and beside it.
        ("with messages as (select * from silver.messages) select count(text) > 0 as a from messages", [True]),
        ("with messages as (select * from messages) select count(text) > 0 as a from messages", [True]),
        ("with a as (from messages), messages as (select 1 as n) select count(text) > 0 as a from a", [True]),
        ("with messages as (select 7 as a) select a from messages", [7]),
        ("with messages as (select 7 as a) select count(text) > 0 as a from silver.messages", [True]),
        ("with messages as (select 7 as a) select count(text) > 0 as a from main.messages", [True]),
        ("select * from (with messages as (select 7 as a) from messages) x, (select 1 from messages limit 1)", [7]),
        ("(with messages as (select 7 as a) from messages) union all select 8 from messages limit 2", [7, 8]),
        # Whoever is inside sees it, and what is called the same inside comes first.
        ("with t as (select 7 as a) select (select a from t) as a from (select 1)", [7]),
        ("with t as (select 7 as a) select * from (with t as (select a + 1 as a from t) from t)", [8]),
        ("with t as (select 7 as a), u as (with t as (select 8 as a) from t) from t union from u order by a", [7, 8]),
        ("with t as (select 7 as a) (from t) union all (from t)", [7, 7]),
        ("with t as (select 7 as a) select 1 as a order by (select a from t) limit (select a from t)", [1]),
        # A recursion sees itself where it recurs, and the table where it begins.
        ("with recursive t(a) as (select 1 union all select a + 1 from t where a < 3) from t order by a", [1, 2, 3]),
        ("with recursive t as (select 1 a union all (with u as (from t) select 2 from u where a < 2)) from t", [1, 2]),
        ("with recursive messages(a) as (select 1 from messages union select a + 1 from messages where a < 2) "
         "from messages order by a", [1, 2]),
        ("with recursive t using key (k) as (select 1 as k, 7 as a union select k, a + 1 from recurring.t where a < 9) "
         "select a from t", [9]),
        # Letters and quotes.
        ('with "Messages" as (select 7 as a) select a from MESSAGES', [7]),
        ("with MESSAGES as (select * from Silver.messages) select count(text) > 0 as a from \"messages\"", [True]),
        ('with "two words" as (select 7 as a) select a from "Two Words"', [7]),
        ("with t as (select 7 as a) select column_name = 'a' as a from (describe t)", [True]),
    ],
)  # fmt: skip
def test_a_name_is_what_a_with_gives_where_that_reaches_and_else_a_table(
    lake: Lake, query: str, rows: list[object]
) -> None:
    assert [row["a"] for row in lake.sql(query)["rows"]] == rows


def test_every_table_of_the_engines_own_is_out_of_reach_whatever_a_with_is_called(lake: Lake) -> None:
    """But for those that tell which tables and columns there are."""
    connection = duckdb.connect()
    query = "select view_name from duckdb_views() where internal and schema_name = 'main'"
    for (name,) in connection.execute(query).fetchall():
        if name not in {"duckdb_columns", "duckdb_schemas", "duckdb_tables", "duckdb_types", "duckdb_views"}:
            for text in (f"from {name}", f"with {name} as (select 1) from main.{name}"):
                with pytest.raises(NotFound):
                    parse(connection, text).tables()
