"""S3 behind one's own authority: every library that reaches the server trusts `s3.ca_file`, and only with it."""

import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import rounds
from behaviour_raw_store import KEY, LARGE, PART_BYTES, put_streamed
from behaviour_vector_index import PRINT, embeddings, vectors
from own_parts import SecureS3, environment, make_identity, running, site

from headwater import lake as lakes
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.settings import FILE_NAME, Settings, resolve
from headwater.stack.stack import settings_text
from headwater.storage.index.vector_index import open_index
from headwater.storage.io.s3 import S3Target
from headwater.storage.query.reader import scan
from headwater.storage.raw.s3_store import S3RawStore
from headwater.storage.spark.session import engine_conf, start_spark, stop_spark
from headwater.storage.tables import catalog as catalogs


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureS3]:
    directory = tmp_path_factory.mktemp("secure")
    with running(SecureS3(site(SecureS3, directory), make_identity(directory))) as part:
        assert isinstance(part, SecureS3)
        yield part


@pytest.fixture
def settings(server: SecureS3, tmp_path: Path) -> Iterator[Settings]:
    with environment({"SSL_CERT_FILE": None}):
        yield resolve(tmp_path, {}, server.settings(), {})


def without_authority(settings: Settings) -> Settings:
    chosen = {name: settings[name] for name in settings.chosen if name.startswith("s3.") and name != "s3.ca_file"}
    return resolve(settings.lake, {}, {**chosen, "catalog.warehouse": settings["catalog.warehouse"]}, {})


def test_raw_objects_of_any_size_come_and_go(settings: Settings) -> None:
    store = S3RawStore(S3Target.from_settings("s3://headwater/raw", settings), PART_BYTES)
    for key, data in ((KEY, b"abc"), (KEY + ".large", LARGE)):
        assert store.get(put_streamed(store, key, data)) == data
    store.delete(KEY)
    assert [found.path for found in store.list()] == [KEY + ".large"]


def test_a_server_that_nobody_vouches_for_is_not_spoken_to(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.storage.io.s3.RETRY_SECONDS", 1.0)
    monkeypatch.setattr("headwater.storage.io.s3.ATTEMPTS", 1)
    stranger = without_authority(settings)
    store = S3RawStore(S3Target.from_settings("s3://headwater/raw", stranger), PART_BYTES)
    calls: list[Callable[[], object]] = [
        lambda: store.put_bytes(KEY, b"abc", "audio/wav"),
        lambda: put_streamed(store, KEY, LARGE),
        lambda: catalogs.create_tables(catalogs.open_catalog(stranger)),
    ]
    for call in calls:
        with pytest.raises(HeadwaterError):
            call()


def test_the_index_is_searched_and_the_usual_authorities_stay_trusted(settings: Settings) -> None:
    usual = ssl.get_default_verify_paths().cafile
    index = open_index(settings)
    index.upsert(embeddings(6))
    index.set_position(6)
    assert len(index.search(PRINT, vectors(6)[0], 10)) == 6
    trusted = Path(os.environ["SSL_CERT_FILE"]).read_bytes()
    assert Path(settings.text("s3.ca_file")).read_bytes() in trusted
    if usual:
        assert Path(usual).read_bytes() in trusted
    before = os.environ["SSL_CERT_FILE"]
    assert open_index(settings).count() == 6
    assert open_index(settings).present(["c1"]) == {"c1"}
    assert os.environ["SSL_CERT_FILE"] == before


def test_pyiceberg_and_spark_on_a_cluster_share_tables(settings: Settings, cluster_url: str) -> None:
    options = {name: settings[name] for name in settings.chosen if name.startswith(("s3.", "catalog."))}
    document = {"spark": {"conf": {"spark.executor.memory": "768m", "spark.driver.extraJavaOptions": "-Dmine=1"}}}
    lake = resolve(settings.lake, document, {**options, "spark.master": cluster_url}, {})
    catalog = catalogs.open_catalog(lake)
    catalog.create_namespace("silver")
    said = pa.table({"id": [1, 2, 3]})
    catalog.create_table("silver.said", said.schema).append(said)
    spark = start_spark(lake)
    try:
        spark.sql("create table lake.silver.doubled as select id * 2 as id from lake.silver.said")
        assert spark.sparkContext.getConf().get("spark.driver.extraJavaOptions").endswith(" -Dmine=1")
    finally:
        stop_spark(spark)
    assert sorted(scan(catalog, "silver.doubled", ["id"])["id"].to_pylist()) == [2, 4, 6]


def test_a_lake_whose_every_object_is_behind_it_runs_and_is_searched(settings: Settings, tmp_path: Path) -> None:
    lake_directory = tmp_path / "lake"
    rounds.use_cheap_models(lake_directory)
    named = {name: settings.text(name) for name in settings.chosen if settings.chosen[name].origin == "option"}
    with (lake_directory / FILE_NAME).open("a") as file:
        file.write(settings_text(named))
    with lakes.init(lake_directory) as lake:
        rounds.put_round(lake, rounds.make_media(tmp_path / "media", 0), 0)
    line = [sys.executable, "-m", "headwater", "run", "--once", "--lake", str(lake_directory)]
    done = subprocess.run(line, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with lakes.open(lake_directory) as lake:
        assert not lake.pending()
        assert len(rounds.contents(lake)["silver.transcripts"]) == 4
        assert lake.search("my invoice is wrong")


@pytest.mark.parametrize("content", [None, "nothing"])
def test_a_missing_or_senseless_authority_is_refused_by_the_settings_name(tmp_path: Path, content: str | None) -> None:
    if content:
        (tmp_path / "ca.pem").write_text(content)
    wrong = resolve(tmp_path, {}, {"s3.ca_file": str(tmp_path / "ca.pem")}, {})
    with pytest.raises(InvalidRequest, match=r"s3\.ca_file"):
        S3Target.from_settings("s3://b", wrong)
    with pytest.raises(InvalidRequest, match=r"s3\.ca_file"):
        engine_conf(wrong)
