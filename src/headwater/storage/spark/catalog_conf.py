"""The lake's Iceberg catalog, as Spark is told of it; PyIceberg opens the same database."""

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from headwater.errors import InvalidRequest
from headwater.settings import Settings
from headwater.storage.io.s3 import S3Target, is_s3
from headwater.storage.tables.catalog import is_postgres, warehouse_uri
from headwater.storage.tables.metadata_location import CATALOG
from headwater.storage.tables.rest_catalog import URIS, is_rest, rest_conf

JDBC_LIMITS: Final = "connectTimeout=10&socketTimeout=60&tcpKeepAlive=true"


def catalog_conf(settings: Settings) -> dict[str, str]:
    """The settings of Spark's SQL catalog; `[spark.conf]` has the last word."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    warehouse = warehouse_uri(settings)
    uri = settings.text("catalog.uri")
    database = {"type": "jdbc", "jdbc.schema-version": "V1", "warehouse": warehouse}
    catalog = {"type": "rest"} | rest_conf(settings) if is_rest(uri) else database | _database(uri)
    # A cached table does not see what PyIceberg or another process commits.
    catalog["cache-enabled"] = "false"
    if is_s3(warehouse):
        catalog |= S3Target.from_settings(warehouse, settings, "catalog.warehouse").spark()
    chosen = {name: value for name, value in settings.section("spark.conf").items() if name.startswith(f"{prefix}.")}
    named = {f"{prefix}.{name}": value for name, value in catalog.items()}
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | named | chosen


def _database(uri: str) -> dict[str, str]:
    if is_postgres(uri):
        return _postgres(uri)
    scheme, _, file = uri.partition(":///")
    if scheme != "sqlite" or not file:
        raise InvalidRequest(f"catalog.uri is not known to Spark. {URIS}")
    # Without a busy timeout, a lock of some seconds fails the commit.
    return {"uri": f"jdbc:sqlite:{Path('/', file)}?busy_timeout=30000&journal_mode=WAL"}


def _postgres(uri: str) -> dict[str, str]:
    """User and password apart: an address is printed in errors and logs."""
    parts = urlsplit(uri)
    port = f":{parts.port}" if parts.port else ""
    # A server that vanished without a word is given up in time; what the address says itself comes last, and counts.
    query = "&".join(filter(None, (JDBC_LIMITS, parts.query)))
    found = {"uri": f"jdbc:postgresql://{parts.hostname or 'localhost'}{port}{parts.path}?{query}"}
    who = {"jdbc.user": unquote(parts.username or ""), "jdbc.password": unquote(parts.password or "")}
    return found | {name: value for name, value in who.items() if value}
