"""Spark starts silently, alone, and goes with Python; what is missing is said in a sentence."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from waiting import wait_until

from headwater.errors import Conflict, InvalidRequest, Unavailable
from headwater.settings import Settings, resolve
from headwater.storage.io.java import Java, check_java
from headwater.storage.io.scratch import remove_abandoned
from headwater.storage.spark import jars
from headwater.storage.spark import jvm as spark_process
from headwater.storage.spark.catalog_conf import catalog_conf
from headwater.storage.spark.jars import EMBEDDED, Jar, resolve_jars
from headwater.storage.spark.session import engine_conf, start_spark, stop_spark

PATIENCE_SECONDS = 120

# Does what is noisiest in Spark: a window without partition, a query that fails, an interrupt while one runs.
SCRIPT = """
import sys, threading
from pathlib import Path
from waiting import wait_until
from headwater.settings import resolve
from headwater.storage.spark.session import start_spark, stop_spark
def tell():
    wait_until(spark.sparkContext.statusTracker().getActiveJobsIds)
    (lake / "ready").touch()
lake = Path(sys.argv[1])
spark = start_spark(resolve(lake, {}, {}, {}))
spark.sql("create namespace lake.n")
spark.sql("create table lake.n.t (id bigint) using iceberg")
spark.range(9).writeTo("lake.n.t").append()
spark.sql("select row_number() over (order by id) from lake.n.t").collect()
for mistake in ("select nothing from lake.n.t", "select raise_error('x')"):
    try:
        spark.sql(mistake).collect()
    except Exception:
        pass
threading.Thread(target=tell).start()
try:
    spark.range(1 << 40).selectExpr("sum(id % 7)").collect()
except KeyboardInterrupt:
    (lake / "interrupted").touch()
spark.sparkContext.cancelAllJobs()
(lake / "after").write_text(str(spark.table("lake.n.t").count()))
stop_spark(spark)
"""


def started(lake: Path, temporary: Path) -> "subprocess.Popen[str]":
    lake.mkdir(parents=True)
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(lake)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: (lake / "ready").exists() or process.poll() is not None)
    return process


def aged_scratch(temporary: Path) -> Path:
    """All that the process has in its temporary directory, private and as if it were there for an hour."""
    (scratch,) = temporary.iterdir()
    assert any(scratch.rglob("blockmgr-*")) and scratch.stat().st_mode & 0o077 == 0
    old = time.time() - 3_600
    os.utime(scratch, (old, old))
    return scratch


def gone(process: psutil.Process) -> bool:
    """Dead, whether or not its new parent has taken note."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_run_that_is_interrupted_says_nothing_and_ends_cleanly(tmp_path: Path) -> None:
    lake, temporary = tmp_path / "lake", tmp_path / "tmp"
    process = started(lake, temporary)
    jvm = psutil.Process(process.pid).children()[0]
    aged_scratch(temporary)
    remove_abandoned(str(temporary))
    assert len(list(temporary.iterdir())) == 1, "however old, it is in use"
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (out, err, process.returncode) == ("", "", 0)
    assert (lake / "interrupted").exists(), "Ctrl-C must reach Python as KeyboardInterrupt"
    assert (lake / "after").read_text() == "9", "the JVM must still answer after Ctrl-C"
    assert gone(jvm)
    assert list(temporary.iterdir()) == []
    assert "No Partition Defined for Window operation" in (lake / "logs" / "spark.log").read_text()


def test_the_jvm_and_its_workers_die_with_python_even_by_sigkill(tmp_path: Path) -> None:
    process = started(tmp_path / "lake", tmp_path / "tmp")
    family = psutil.Process(process.pid).children(recursive=True)
    assert [child.name() for child in family].count("java") == 1
    jvm = next(child for child in family if child.name() == "java")
    process.kill()
    killed = time.monotonic()
    wait_until(lambda: gone(jvm))
    assert time.monotonic() - killed < 1, "a JVM that lingers could still commit"
    process.communicate()
    wait_until(lambda: all(gone(child) for child in family))
    left = aged_scratch(tmp_path / "tmp")
    next_one = "from headwater.storage.io.scratch import scratch_directory; print(scratch_directory())"
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    made = subprocess.run([sys.executable, "-c", next_one], env=environment, check=True, capture_output=True, text=True)
    assert made.stdout.strip() != str(left)
    assert list((tmp_path / "tmp").iterdir()) == [], "what a killed run left is removed by whoever comes next"


def test_two_lakes_share_an_engine_and_not_their_tables(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = start_spark(resolve(tmp_path / "other", {}, {}, {}))
    try:
        assert other.sparkContext is spark.sparkContext
        spark.sql("create namespace lake.mine")
        spark.sql("create table lake.mine.t (id bigint) using iceberg")
        assert other.sql("show namespaces in lake").collect() == []
    finally:
        stop_spark(other)
        stop_spark(other)
    assert spark.table("lake.mine.t").count() == 0, "one lake's stop must not stop another's"


def test_workers_find_headwater_and_use_one_thread(spark: SparkSession) -> None:
    def look(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        import headwater

        list(batches)
        yield pa.RecordBatch.from_pydict(
            {"found": [headwater.__name__], "python": [sys.executable], "threads": [os.environ["OMP_NUM_THREADS"]]}
        )

    seen = spark.range(1).coalesce(1).mapInArrow(look, "found string, python string, threads string").collect()
    assert [tuple(row) for row in seen] == [("headwater", sys.executable, "1")]


def test_a_handler_of_sigint_is_left_alone(spark: SparkSession) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_ends_one_call_and_no_other_connection(spark: SparkSession, tmp_path: Path) -> None:
    """py4j's own way, where a connection was idle, closed them all a moment later; a call that lost its own failed, or
    was made a second time."""
    context = spark.sparkContext
    answers: list[int] = []
    done = threading.Event()
    ran, interrupted = tmp_path / "ran", tmp_path / "interrupted"
    ran.mkdir()

    def idle() -> None:
        context._jvm.java.lang.Math.abs(-1)
        done.wait(PATIENCE_SECONDS)

    def slow(n: int) -> int:
        (ran / f"{time.time_ns()}").touch()
        wait_until(interrupted.exists)
        return n

    def job() -> None:
        answers.extend(context.parallelize([1], 1).map(slow).collect())

    def interrupt() -> None:
        wait_until(lambda: any(ran.iterdir()))
        os.kill(os.getpid(), signal.SIGINT)

    threads = [threading.Thread(target=target) for target in (idle, job, interrupt)]
    for thread in threads:
        thread.start()
    with pytest.raises(KeyboardInterrupt):
        context._jvm.java.lang.Thread.sleep(PATIENCE_SECONDS * 1000)
    assert [context._jvm.java.lang.Math.abs(-n) for n in range(1000)] == list(range(1000))
    interrupted.touch()
    done.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert answers == [1]
    assert len(list(ran.iterdir())) == 1


def test_other_spark_settings_in_the_same_process_are_refused(spark: SparkSession, settings: Settings) -> None:
    with pytest.raises(Conflict, match="already running"):
        start_spark(resolve(settings.lake, {}, {"spark.memory_mb": 2048}, {}))


def test_an_archive_that_does_not_fit_is_ignored(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; sys.prefix = sys.argv[1]\n"
        "from headwater.settings import resolve\n"
        "from headwater.storage.spark.session import *\n"
        "from headwater.storage.spark.jvm import archive_file\n"
        "from headwater.storage.spark.jars import resolve_jars\n"
        "archive = archive_file(check_java(), resolve_jars())\n"
        "archive.parent.mkdir(parents=True); archive.write_bytes(b'no archive' * 1000)\n"
        "spark = start_spark(resolve(Path(sys.argv[1]), {}, {}, {}))\n"
        "print(spark.range(3).count()); stop_spark(spark)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_another_java_or_class_path_makes_another_archive() -> None:
    java = check_java()
    files = resolve_jars()
    here = spark_process.archive_file(java, files)
    assert here == spark_process.archive_file(java, files)
    assert here != spark_process.archive_file(Java(java.executable, "99"), files)
    assert here != spark_process.archive_file(java, files[:1])


def test_module_options_are_those_of_sparks_own_launcher() -> None:
    home = jars.spark_home()
    said = subprocess.run(
        [
            check_java().executable,
            "-cp",
            f"{home}/jars/*",
            "org.apache.spark.launcher.Main",
            "org.apache.spark.deploy.SparkSubmit",
            "pyspark-shell",
        ],
        env={**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    theirs = {option for option in said if option.startswith(("--add", "-D", "-XX"))}
    assert theirs - {"--add-modules=jdk.incubator.vector"} == set(spark_process.MODULE_OPTIONS)


def test_spark_conf_has_the_last_word(tmp_path: Path) -> None:
    document = {"spark": {"conf": {"spark.ui.enabled": "true", "spark.sql.catalog.lake.cache-enabled": "true"}}}
    settings = resolve(tmp_path, document, {}, {})
    assert engine_conf(settings)["spark.ui.enabled"] == "true"
    assert catalog_conf(settings)["spark.sql.catalog.lake.cache-enabled"] == "true"


def test_a_catalog_that_spark_cannot_open_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"catalog\.uri is not known to Spark"):
        catalog_conf(resolve(tmp_path, {}, {"catalog.uri": "mysql://host/db"}, {}))


def test_a_rest_catalog_is_a_choice_of_the_same_setting(tmp_path: Path) -> None:
    options = {"catalog.uri": "https://catalog.example/api", "catalog.warehouse": "calls", "catalog.token": "t"}
    conf = catalog_conf(resolve(tmp_path, {}, options, {}))
    found = {name.removeprefix("spark.sql.catalog.lake."): value for name, value in conf.items()}
    assert found["type"] == "rest"
    assert (found["uri"], found["warehouse"], found["token"]) == ("https://catalog.example/api", "calls", "t")
    assert "jdbc.schema-version" not in found


def fake_java(home: Path, body: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{body}\n")
    executable.chmod(executable.stat().st_mode | stat.S_IXUSR)
    return home


def test_a_missing_java_is_one_sentence_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"Java is missing; .* apt-get install openjdk-17-jre-headless$"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(Unavailable, match="JAVA_HOME is /nowhere, and it has no bin/java"):
        check_java()


@pytest.mark.parametrize(("said", "found"), [("11.0.22", "11.0.22"), ("1.8.0_402", r"1\.8\.0_402")])
def test_an_old_java_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, found: str) -> None:
    home = fake_java(tmp_path / "jdk", f"echo 'openjdk version \"{said}\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(Unavailable, match=rf"^Java {found} found at .*; Headwater needs 17 or newer"):
        check_java()


def test_java_17_is_read_from_the_release_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "exit 1")
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert check_java().feature == 21


def test_no_network_is_one_sentence_that_says_where_jars_belong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    nowhere = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9 -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=9"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", nowhere)
    said: list[str] = []
    with pytest.raises(Unavailable, match=r"could not be fetched; check the network .* copy it to"):
        resolve_jars(EMBEDDED[1:], report=said.append)
    assert said == [f"Fetching {EMBEDDED[1].file_name} (once)"]
    assert list((tmp_path / "jars").iterdir()) == []


def test_a_jar_with_other_bytes_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    # Stands in for a mirror that answers with something else: the last argument is where Ivy would put the jar.
    home = fake_java(tmp_path / "jdk", 'for last; do :; done; echo other > "$(dirname "$last")/part-1.jar"')
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(Unavailable, match="other bytes than expected"):
        resolve_jars([Jar("group", "part", "1", "0" * 64)])
    assert list((tmp_path / "jars").iterdir()) == []


def test_importing_the_module_imports_no_pyspark() -> None:
    script = "import sys, headwater.storage.spark.session; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_what_a_stream_prints_for_months_takes_two_files_of_bounded_length(tmp_path: Path) -> None:
    output, most = tmp_path / "spark.out", 1 << 20
    with output.open("ab") as sink:
        printing = subprocess.Popen(["yes", "a model that says much"], stdout=sink)
    spark_process.bound_output(output, lambda: printing.poll() is None, bytes_most=most, seconds=0.01)
    wait_until((tmp_path / "spark.out.1").exists)
    longest = 0

    def begins_anew() -> bool:
        nonlocal longest
        length = output.stat().st_size
        longest = max(longest, length)
        return length < longest

    for _ in range(2):
        longest = 0
        wait_until(begins_anew)
    printing.kill()
    printing.wait()
    assert b"\0" not in output.read_bytes()[:4096]
