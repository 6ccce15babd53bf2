"""Buckets as hosts (`s3.path_style = false`): each library asks `bucket.server` and finds what the others wrote.

Such names need a resolver that knows them. The tests bring one for each library instead: a proxy for those in Python
and Rust, a hosts file for the JVM; Arrow's own takes every name below localhost for this machine.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from behaviour_raw_store import KEY, LARGE, PART_BYTES, put_streamed
from behaviour_vector_index import PRINT, embeddings, vectors
from own_parts import Forwarder, NamedS3, environment, forwarding, running, site

from headwater.settings import Settings, resolve
from headwater.storage.index.vector_index import open_index
from headwater.storage.io.s3 import S3Target
from headwater.storage.query.reader import scan
from headwater.storage.raw.s3_store import S3RawStore
from headwater.storage.spark.session import start_spark, stop_spark
from headwater.storage.tables import catalog as catalogs


class Listening(Forwarder):
    """Notes which hosts were asked."""

    asked: ClassVar[set[str]] = set()

    def answer(self) -> None:
        self.asked.add(str(urlsplit(self.path).hostname))
        super().answer()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamedS3]:
    with running(NamedS3(site(NamedS3, tmp_path_factory.mktemp("named")))) as part:
        assert isinstance(part, NamedS3)
        yield part


@pytest.fixture
def settings(server: NamedS3, tmp_path: Path) -> Iterator[Settings]:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost headwater.{server.domain}\n")
    document = {"spark": {"conf": {"spark.driver.extraJavaOptions": f"-Djdk.net.hosts.file={hosts}"}}}
    Listening.asked.clear()
    with forwarding(server.address, Listening) as proxy, environment({"http_proxy": proxy, "HTTP_PROXY": proxy}):
        yield resolve(tmp_path, document, {**server.settings(), "s3.path_style": False}, {})


def test_raw_objects_and_the_index_go_to_the_buckets_own_host(settings: Settings) -> None:
    store = S3RawStore(S3Target.from_settings("s3://headwater/raw", settings), PART_BYTES)
    for key, data in ((KEY, b"abc"), (KEY + ".large", LARGE)):
        assert store.get(put_streamed(store, key, data)) == data
    assert len(list(store.list())) == 2
    index = open_index(settings)
    index.upsert(embeddings(6))
    assert len(index.search(PRINT, vectors(6)[0], 10)) == 6
    assert Listening.asked == {"headwater.s3.localhost"}


def test_tables_are_shared_by_pyiceberg_and_spark(settings: Settings) -> None:
    catalog = catalogs.open_catalog(settings)
    catalog.create_namespace("silver")
    said = pa.table({"id": [1, 2, 3]})
    catalog.create_table("silver.said", said.schema).append(said)
    spark = start_spark(settings)
    try:
        spark.sql("create table lake.silver.doubled as select id * 2 as id from lake.silver.said")
    finally:
        stop_spark(spark)
    assert sorted(scan(catalog, "silver.doubled", ["id"])["id"].to_pylist()) == [2, 4, 6]
