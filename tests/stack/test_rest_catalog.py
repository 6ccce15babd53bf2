"""An Iceberg REST catalog: Iceberg's own server, from the fixtures of its tests, over a SQLite file, on loopback.

It answers as the specification says, without authentication. Others (Polaris, Nessie, Glue, Unity) are not tested.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rounds
from behaviour_catalog import *  # noqa: F403
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from sample_rows import rows
from wire import once, wire_to

from headwater import lake as lakes
from headwater.domain.progress import NEXT_SEQ
from headwater.domain.tables import MESSAGES
from headwater.errors import Unavailable
from headwater.settings import FILE_NAME, Settings, resolve
from headwater.stack.ivy import Module, fetch
from headwater.storage.io.cache import cache_directory
from headwater.storage.spark.jars import resolve_jars, spark_home
from headwater.storage.spark.session import start_spark, stop_spark
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.writer import TableWriter

ICEBERG = "1.11.0"
MODULES = (
    Module("org.apache.iceberg", "iceberg-core", ICEBERG, beside=("tests",)),
    Module("org.eclipse.jetty.ee10", "jetty-ee10-servlet", "12.0.16"),
)
JARS_SHA256 = "cc8dccae9b3650a4523d5f825658f77501da6d8c8427397c7c409077c744f097"
# What comes of one round of small media.
ROUND = {
    "bronze.events": 11,
    "silver.transcripts": 4,
    "silver.captions": 2,
    "silver.messages": 3,
    "silver.embeddings": 9,
}


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A JVM that has the server's classes; it ends with this process at the latest."""
    jars = cache_directory() / "iceberg-rest" / ICEBERG
    if not jars.is_dir():
        fetch(jars, MODULES, JARS_SHA256)
    ours = spark_home() / "jars"
    hadoop = [*ours.glob("hadoop-client-api-*.jar"), *ours.glob("hadoop-client-runtime-*.jar")]
    classes = [*sorted(jars.glob("*.jar")), *resolve_jars()[1:], *hadoop]
    port, token = launch_gateway(
        jarpath=str(next(ours.glob("py4j-*.jar"))),
        classpath=":".join(map(str, classes)),
        javaopts=["-Xmx256m", "-XX:+UseSerialGC"],
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    yield gateway.jvm
    gateway.shutdown()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of this file alone: others need other jars."""
    session = start_spark(resolve(tmp_path_factory.mktemp("engine"), {}, {}, {}))
    yield
    stop_spark(session)


@pytest.fixture
def server(java: Any, tmp_path: Path) -> Iterator[str]:
    """The address of an empty catalog; its tables are below `warehouse`."""
    options = java.java.util.HashMap()
    places = {
        "uri": f"jdbc:sqlite:{tmp_path / 'rest.db'}?busy_timeout=30000",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    for name, value in {"type": "jdbc", "jdbc.schema-version": "V1", **places}.items():
        options.put(name, value)
    backend = java.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
        "rest", options, java.org.apache.hadoop.conf.Configuration()
    )
    servlet = java.org.apache.iceberg.rest.RESTCatalogServlet(java.org.apache.iceberg.rest.RESTCatalogAdapter(backend))
    ee10 = java.org.eclipse.jetty.ee10.servlet
    handler = ee10.ServletContextHandler()
    handler.addServlet(ee10.ServletHolder(servlet), "/*")
    web = java.org.eclipse.jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", 0))
    web.setHandler(handler)
    web.start()
    yield f"http://127.0.0.1:{web.getURI().getPort()}"
    web.stop()


@pytest.fixture
def settings(server: str, tmp_path: Path) -> Settings:
    options = {"catalog.uri": server, "catalog.warehouse": str(tmp_path / "warehouse")}
    return resolve(tmp_path / "lake", {}, options, {})


def test_many_writers_counting_up_lose_no_step(settings: Settings) -> None:
    """The suite's promise, narrowed: a REST server compares no properties, so these take turns, as with a lease."""
    catalogs.create_tables(catalogs.open_catalog(settings))
    lease = threading.Lock()

    def count_up() -> None:
        catalog = catalogs.open_catalog(settings)
        for _ in range(5):
            with lease:
                seq = catalogs.load(catalog, "events").properties.get(NEXT_SEQ)
                catalogs.set_properties_if(catalog, "events", {NEXT_SEQ: seq}, {NEXT_SEQ: str(int(seq or 0) + 1)})

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_progress(settings, EVENTS).next_seq == 20  # noqa: F405


def test_a_lake_on_it_takes_in_derives_and_answers(settings: Settings, tmp_path: Path) -> None:
    rounds.use_cheap_models(settings.lake)
    chosen = {name: settings.text(f"catalog.{name}") for name in ("uri", "warehouse")}
    with (settings.lake / FILE_NAME).open("a") as file:
        file.write("[catalog]\n" + "".join(f'{name} = "{value}"\n' for name, value in chosen.items()))
    with lakes.init(settings.lake) as lake:
        rounds.put_round(lake, rounds.make_media(tmp_path / "media", 0), 0)
    line = [sys.executable, "-m", "headwater", "--lake", str(settings.lake)]
    for _ in range(2):
        done = subprocess.run([*line, "run", "--once"], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    with lakes.open(settings.lake) as lake:
        assert not lake.pending()
        found = rounds.contents(lake)
        assert {name: len(found[name]) for name in ROUND} == ROUND
        counted = lake.sql("select count(distinct event_id) as n from events")
        assert counted["rows"] == [{"n": ROUND["bronze.events"]}]


@pytest.mark.parametrize("action", ["lose", "cut", "delay", "repeat"])
def test_rows_are_there_once_whatever_becomes_of_the_answer(
    engine: None, settings: Settings, tmp_path: Path, action: str
) -> None:
    port = int(settings.text("catalog.uri").rpartition(":")[2])
    with wire_to("127.0.0.1", port, lambda data: b"tables/messages" in data and data.startswith(b"POST")) as wire:
        options = {"catalog.uri": f"http://127.0.0.1:{wire.port}", "catalog.warehouse": str(tmp_path / "warehouse")}
        through = resolve(tmp_path / "lake", {}, options, {})
        catalogs.create_tables(catalogs.open_catalog(settings))
        spark = start_spark(through)
        try:
            writer = TableWriter(spark, through, epoch=1)
            given = rows(MESSAGES, [{"object_id": f"o{n}"} for n in range(3)]).select(MESSAGES.columns)
            wire.fault = once(2, action)
            for position in (3, 6, 9):
                since = read_progress(writer.tables, MESSAGES)
                writer.publish(MESSAGES, given, {EVENTS.name: position}, since=since, stage="derive")  # noqa: F405
            since = read_progress(writer.tables, MESSAGES)
            writer.publish(MESSAGES, None, {EVENTS.name: 11}, since=since, stage="derive")  # noqa: F405
            assert wire.done == [action]
            assert spark.table("lake.silver.messages").count() == 9
            assert len(catalogs.open_catalog(settings).load_table("silver.messages").snapshots()) == 4
            assert read_progress(writer.tables, MESSAGES).seq_of(EVENTS.name) == 11  # noqa: F405
        finally:
            stop_spark(spark)


def test_a_server_that_is_gone_is_unavailable(settings: Settings, tmp_path: Path) -> None:
    gone = resolve(tmp_path, {}, {"catalog.uri": "http://127.0.0.1:9"}, {})
    with pytest.raises(Unavailable, match="could not be reached"):
        catalogs.open_catalog(gone)
    with pytest.raises(Unavailable, match="could not be reached"):
        read_progress(gone, EVENTS)  # noqa: F405
