"""The catalog in Postgres with its tables on S3: PyIceberg and Spark on the same database."""

import psycopg
import pyarrow as pa
import pytest
from behaviour_catalog import *  # noqa: F403

from headwater.domain import tables
from headwater.errors import Unavailable
from headwater.settings import Settings, resolve
from headwater.storage.ledger import postgres_database
from headwater.storage.query.reader import run_sql, scan
from headwater.storage.spark.catalog_conf import JDBC_LIMITS, catalog_conf
from headwater.storage.spark.session import start_spark, stop_spark
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.read_progress import read_progress


@pytest.fixture
def settings(stack_lake: Settings) -> Settings:
    return stack_lake


def test_spark_and_pyiceberg_share_the_tables_in_both_directions(settings: Settings, postgres_uri: str) -> None:
    catalog = catalogs.open_catalog(settings)
    catalogs.create_tables(catalog)
    said = pa.table({"text": ["hello", "again"]})
    catalog.create_table("silver.by_pyiceberg", said.schema).append(said)
    spark = start_spark(settings)
    try:
        seen = {row["text"] for row in spark.table("lake.silver.by_pyiceberg").collect()}
        spark.sql("delete from lake.silver.by_pyiceberg where text = 'hello'")
        spark.sql("create table lake.silver.by_spark as select 7L as id")
        spark.sql("alter table lake.silver.messages set tblproperties ('headwater.next_seq' = '9')")
        spark.sql("call lake.system.rewrite_data_files('silver.by_pyiceberg')")
        spark.sql("call lake.system.expire_snapshots('silver.by_pyiceberg', timestamp '2100-01-01')")
    finally:
        stop_spark(spark)
    assert seen == {"hello", "again"}
    assert scan(catalog, "silver.by_pyiceberg", ["text"]).to_pylist() == [{"text": "again"}]
    assert scan(catalog, "silver.by_spark", ["id"]).to_pylist() == [{"id": 7}]
    assert run_sql(catalog, "select count(*) as n from messages")["rows"] == [{"n": 0}]
    assert read_progress(settings, tables.MESSAGES).next_seq == 9
    with psycopg.connect(postgres_uri) as connection:
        kinds = connection.execute("select distinct iceberg_type from iceberg_tables").fetchall()
    assert kinds == [("TABLE",)]


def test_no_password_stands_in_the_address_that_spark_logs(settings: Settings) -> None:
    lake = resolve(settings.lake, {}, {"catalog.uri": "postgresql://u:p%40ss@h:1/db?sslmode=require"}, {})
    conf = catalog_conf(lake)
    assert conf["spark.sql.catalog.lake.uri"] == f"jdbc:postgresql://h:1/db?{JDBC_LIMITS}&sslmode=require"
    assert (conf["spark.sql.catalog.lake.jdbc.user"], conf["spark.sql.catalog.lake.jdbc.password"]) == ("u", "p@ss")


def test_a_catalog_that_is_not_there_is_unavailable_and_no_password_is_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "WAIT_SECONDS", 0.5)
    gone = resolve(settings.lake, {}, {"catalog.uri": "postgresql://user:s3cret@127.0.0.1:9/lake"}, {})
    for call in (lambda: catalogs.open_catalog(gone), lambda: read_progress(gone, tables.EVENTS)):
        with pytest.raises(Unavailable) as raised:
            call()
        assert "s3cret" not in str(raised.value)
