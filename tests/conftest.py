"""Fixtures that more than one file needs: a lake's settings, and a Spark whose engine is started once for all tests."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import forked
import pytest

import headwater
from headwater.settings import Settings, resolve
from headwater.storage.spark.session import start_spark, stop_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's workers and every other child must find the tests' own models, and the Headwater that is tested: an installed
# one may be of another clone.
os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (Path(__file__).parent, Path(headwater.__file__).parents[1])))
# A shell that starts the tests in the background has them, and so every child, ignore Ctrl-C.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def lake_settings(directory: Path, **options: str | float) -> Settings:
    directory.mkdir(parents=True, exist_ok=True)
    return resolve(directory, {}, options, {})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Defaults, on a directory of this test alone."""
    return lake_settings(tmp_path / "lake")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What this process has synced: after a power cut all else may be gone."""
    known, fsync = set[str](), os.fsync

    def noting(descriptor: int) -> None:
        fsync(descriptor)
        known.add(os.path.realpath(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", noting)
    return known


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Holds a session so that the JVM outlives each test's own."""
    session = start_spark(lake_settings(tmp_path_factory.mktemp("engine")))
    yield
    stop_spark(session)


@pytest.fixture
def spark(engine: None, settings: Settings) -> Iterator["SparkSession"]:
    """A session on this test's lake."""
    session = start_spark(settings)
    yield session
    stop_spark(session)


@pytest.fixture(scope="session")
def forks() -> Iterator[forked.Forks]:
    """Real processes, for tests that start many."""
    with forked.forking() as started:
        yield started
