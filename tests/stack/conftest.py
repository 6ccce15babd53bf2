"""The production parts for tests: one stack for the session, each part started when a test first asks for it.

A test gets what nobody else uses: a database, a bucket, a topic, or a lake on all of them. A test that kills a part
need not restart it: the next one that asks for it finds it running.
HEADWATER_STACK=DIR uses the stack that `headwater up --dir DIR` started, and leaves it running: quicker while writing.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pytest

from headwater.settings import Settings
from headwater.stack.stack import Stack

HOME = Path(tempfile.gettempdir()) / f"headwater-stacks-{os.getuid()}"
Name = Callable[[], str]


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Nothing of it runs yet; the fixtures below start what they need."""
    if chosen := os.environ.get("HEADWATER_STACK"):
        yield Stack(chosen)
        return
    HOME.mkdir(exist_ok=True)
    HOME.chmod(0o711)  # the database's user must get through; pytest's own directories are closed
    remove_abandoned_stacks()
    with held(HOME / uuid.uuid4().hex[:8]) as directory:
        running = Stack(directory)
        yield running
        running.down(purge=True)


@contextmanager
def held(directory: Path) -> Iterator[Path]:
    """As long as this process lives, others see that the directory is in use."""
    lock = directory.with_suffix(".lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield directory
        lock.unlink()


def remove_abandoned_stacks() -> None:
    """A session that was killed left its servers running."""
    for lock in HOME.glob("*.lock"):
        with suppress(OSError), lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Stack(lock.with_suffix("")).down(purge=True)
            lock.unlink()


@pytest.fixture
def fresh_name(request: pytest.FixtureRequest) -> Name:
    """Names that only this test uses, and that every server allows."""
    test = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:6]
    return lambda: f"t{test}{uuid.uuid4().hex[:8]}"


@pytest.fixture
def postgres_uri(stack: Stack, fresh_name: Name) -> Iterator[str]:
    """An empty database."""
    stack.up(["postgres"])
    server, name = stack.parts()["postgres"]["url"], fresh_name()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield server.rpartition("/")[0] + f"/{name}"
    stack.up(["postgres"])
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def kafka_address(stack: Stack) -> str:
    """`127.0.0.1:port` of the broker."""
    stack.up(["kafka"])
    return stack.parts()["kafka"]["url"].removeprefix("kafka://").partition("/")[0]


@pytest.fixture
def kafka_uri(kafka_address: str, fresh_name: Name) -> str:
    """A topic that nobody has made yet."""
    return f"kafka://{kafka_address}/{fresh_name()}"


@pytest.fixture
def s3_settings(stack: Stack, tmp_path: Path) -> Settings:
    """With the server's endpoint and keys; the URIs are the stack's own, so name a bucket of the test's."""
    stack.up(["s3"])
    return stack.settings(tmp_path)


@pytest.fixture
def s3_client(s3_settings: Settings) -> Any:
    keys = [s3_settings.text(f"s3.{name}") for name in ("access_key", "secret_key")]
    session = boto3.Session(*keys, region_name=s3_settings.text("s3.region"))
    return session.client("s3", endpoint_url=s3_settings.text("s3.endpoint"))


@pytest.fixture
def bucket(s3_client: Any, fresh_name: Name) -> str:
    """An empty bucket."""
    name = fresh_name()
    s3_client.create_bucket(Bucket=name)
    return name


@pytest.fixture
def stack_lake(stack: Stack, postgres_uri: str, kafka_uri: str, bucket: str, tmp_path: Path) -> Settings:
    """A lake on the servers alone, with Spark in this process: for the cluster, set `spark.master` by `cluster_url`."""
    places = {"raw.uri": "raw", "catalog.warehouse": "warehouse", "index.uri": "index", "memo.uri": "memo"}
    (tmp_path / "lake").mkdir(exist_ok=True)
    return stack.settings(
        tmp_path / "lake",
        {
            **{name: f"s3://{bucket}/{prefix}" for name, prefix in places.items()},
            "catalog.uri": postgres_uri,
            "ledger.uri": postgres_uri,
            "log.uri": kafka_uri,
            "spark.master": "",
        },
    )


@pytest.fixture
def cluster_url(stack: Stack) -> str:
    """`spark://…` of a master with two workers."""
    stack.up(["spark"])
    return str(stack.parts()["spark-master"]["url"])


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory for a stack of the test's own, which a database's user can reach."""
    HOME.mkdir(exist_ok=True)
    HOME.chmod(0o711)
    with held(HOME / uuid.uuid4().hex[:8]) as directory:
        yield directory
        Stack(directory).down(purge=True)
        shutil.rmtree(directory, ignore_errors=True)
