"""Connect: what another program needs to read the lake's tables by itself, without Headwater.

Reads   the settings
Writes  nothing
The tables are plain Iceberg tables in a plain catalog, so a recipe is a few settings and a line or two. No secret is in
it unless it is asked for them: what a program prints ends in notebooks, tickets and logs.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from headwater.errors import InvalidRequest
from headwater.settings import MASK, Settings, masked
from headwater.storage.io.s3 import S3Target, is_s3
from headwater.storage.spark.catalog_conf import catalog_conf
from headwater.storage.spark.jars import jars_for, packages_of
from headwater.storage.tables.catalog import NAME, is_postgres, warehouse_uri
from headwater.storage.tables.rest_catalog import is_rest, rest_conf

_SECRET: Final = re.compile(r"password|secret|token", re.IGNORECASE)
_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


@dataclass(frozen=True, slots=True)
class Recipe:
    """`conf` is what the engine is told, `packages` what it must have, `code` a program that reads a table; `secrets`
    are the names of what was left out, for the reader to fill in."""

    engine: str
    packages: tuple[str, ...]
    conf: Mapping[str, str]
    code: str
    secrets: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "packages": list(self.packages), "secrets": list(self.secrets)}


def recipe_for(settings: Settings, engine: str, *, secrets: bool = False) -> Recipe:
    """How an engine reads the lake's tables; secrets are masked unless they are asked for."""
    if engine not in ENGINES:
        raise InvalidRequest(f"No recipe is known for {engine!r}. Ask for one of {', '.join(ENGINES)}.")
    packages, conf, write_code = ENGINES[engine](settings)
    hidden = () if secrets else tuple(name for name, value in conf.items() if _shown(name, value) != value)
    shown = conf if secrets else {name: _shown(name, value) for name, value in conf.items()}
    return Recipe(engine, packages, shown, write_code(shown), hidden)


def _shown(name: str, value: str) -> str:
    return MASK if value and _SECRET.search(name) else masked(value)


Parts = tuple[tuple[str, ...], dict[str, str], Callable[[Mapping[str, str]], str]]


def _spark(settings: Settings) -> Parts:
    # A reader needs no Kafka; who has the flow run inside the session does.
    packages = packages_of(jars_for(settings))
    # Who only reads, reads what is newest, as we do; the extensions are for those who change tables.
    conf = {"spark.jars.packages": packages, "spark.sql.extensions": _EXTENSIONS, **catalog_conf(settings)}
    return tuple(packages.split(",")), conf, _spark_code


def _spark_code(conf: Mapping[str, str]) -> str:
    lines = [f"    .config({name!r}, {value!r})" for name, value in conf.items()]
    # Workers run the flow's Python; who only reads has none of his own.
    flow = "# For lake.run(spark=spark), before this: os.environ['PYSPARK_PYTHON'] = sys.executable"
    session = ["from pyspark.sql import SparkSession", "", flow, "spark = (", "    SparkSession.builder", *lines]
    return "\n".join([*session, "    .getOrCreate()", ")", f'rows = spark.read.table("{NAME}.silver.messages")', ""])


def _pyiceberg_conf(settings: Settings) -> dict[str, str]:
    uri, warehouse = settings.text("catalog.uri"), warehouse_uri(settings)
    files = S3Target.from_settings(warehouse, settings, "catalog.warehouse").iceberg() if is_s3(warehouse) else {}
    # Ours are for classes of our own, which nobody else has.
    files = {name: value for name, value in files.items() if name.startswith("s3.")}
    if is_rest(uri):
        return {"type": "rest", **rest_conf(settings), **files}
    if is_postgres(uri):
        uri = f"postgresql+psycopg://{uri.partition('://')[2]}"
    # A reader makes no tables of a catalog, not even where one is missing.
    return {"type": "sql", "uri": uri, "warehouse": warehouse, "init_catalog_tables": "false", **files}


def _by_pyiceberg(name: str, *packages: str, imports: str = "", read: str) -> Callable[[Settings], Parts]:
    def write_code(conf: Mapping[str, str]) -> str:
        lines = [f"    {key!r}: {value!r}," for key, value in conf.items()]
        head = [imports] if imports else []
        opened = [*head, "from pyiceberg.catalog import load_catalog", "", f"catalog = load_catalog({NAME!r}, **{{"]
        return "\n".join([*opened, *lines, "})", 'table = catalog.load_table("silver.messages")', read, ""])

    def parts(settings: Settings) -> Parts:
        extra = {"sqlite": "sql-sqlite", "postgres": "sql-postgres"}
        kind = next((extra[kind] for kind in extra if settings.text("catalog.uri").startswith(kind)), "pyarrow")
        also = ("psycopg[binary]",) if kind == "sql-postgres" else ()
        return (f"pyiceberg[{kind},pyarrow]", *also, *packages), _pyiceberg_conf(settings), write_code

    parts.__name__ = name
    return parts


ENGINES: Final[Mapping[str, Callable[[Settings], Parts]]] = {
    "spark": _spark,
    "pyiceberg": _by_pyiceberg("pyiceberg", read="rows = table.scan().to_arrow()"),
    "duckdb": _by_pyiceberg(
        "duckdb",
        "duckdb",
        read='connection = table.scan().to_duckdb("messages")\n'
        'rows = connection.sql("SELECT customer, text FROM messages").to_arrow_table()',
    ),
    "polars": _by_pyiceberg(
        "polars", "polars", imports="import polars as pl", read="rows = pl.scan_iceberg(table).collect()"
    ),
    "daft": _by_pyiceberg("daft", "daft", imports="import daft", read="rows = daft.read_iceberg(table).to_arrow()"),
}
