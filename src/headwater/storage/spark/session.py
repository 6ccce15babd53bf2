"""Spark: one engine for the process, one session for each lake.

Reads   settings (spark.*, catalog.*, [spark.conf])
Writes  <lake>/logs/spark.log (warnings and errors, rolling) and spark.out (what the JVM prints)

The engine (JVM and SparkContext) takes seconds to start and is shared; a session takes milliseconds and has the lake's
Iceberg catalog under the name `lake`. Importing this module imports neither pyspark nor a JVM.
"""

import atexit
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.errors import Conflict
from headwater.settings import Settings
from headwater.storage.io.certificates import trusting_conf
from headwater.storage.io.java import check_java
from headwater.storage.io.scratch import scratch_in
from headwater.storage.spark.catalog_conf import catalog_conf
from headwater.storage.spark.jars import Jar, jars_directory, jars_for, resolve_jars
from headwater.storage.spark.jvm import ONE_THREAD, Jvm, Launch, SubmittedJvm, launch, was_submitted
from headwater.storage.spark.packed_environment import (
    PYTHON,
    is_local,
    is_shipped,
    jars_conf,
    on_loopback,
    shipped_conf,
)
from headwater.storage.spark.py4j_patches import interrupt_one_connection, quiet_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["POOL", "check_java", "jars_directory", "start_spark", "stop_spark"]

LOOPBACK: Final = "127.0.0.1"
# A thread that sets this of its own gets its turn beside the tasks of others, however many those have waiting.
POOL: Final = "spark.scheduler.pool"
# What Spark's Python runs, with all that a worker needs; another one does, and starts more slowly.
DAEMON: Final = "headwater.flow.daemon"
# Enough rows to hide what a batch costs on its way between Spark and Python.
ARROW_BATCH_ROWS: Final = 1_000
ARROW_BATCH_BYTES: Final = 32 << 20  # rows with texts of a megabyte come in smaller batches
# Machines come and go: what a lost one had in hand is done again, oftener than Spark would by itself.
CLUSTER: Final = {
    "spark.task.maxFailures": "8",
    "spark.stage.maxConsecutiveAttempts": "8",
    "spark.rpc.message.maxSize": "1024",  # MB: a part travels with its task, and one document is a part
}


@dataclass(slots=True)
class _Engine:
    """The running JVM and its context; `conf` is what it was started with."""

    jvm: Jvm | SubmittedJvm
    conf: dict[str, str]
    jars: frozenset[Jar]
    root: "SparkSession"
    sessions: list["SparkSession"] = field(default_factory=list)


_engine: _Engine | None = None
_lock = threading.RLock()


def _print_to_stderr(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def start_spark(
    settings: Settings,
    *,
    app_name: str = "headwater",
    report: Callable[[str], None] = _print_to_stderr,
    record: Path | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> "SparkSession":
    """A session on the lake's tables. The first one starts the engine; more, for other lakes, are nearly free.

    `report` hears a sentence when jars must be fetched. `meanwhile` is done while this process only waits for the JVM,
    once that has been forked off: what has threads of its own must not be there before. `record` is for set-up: the
    class-data archive to write when the engine stops. Raises Unavailable where Java or a jar is missing, Conflict where
    another Spark is running.
    """
    global _engine
    conf = engine_conf(settings)
    catalog = catalog_conf(settings)
    with _lock:
        if _engine is not None and _engine.jvm.how_it_ended():
            engine, _engine = _engine, None
            _forget_engine(engine)
        if _engine is None:
            _engine = _start_engine(settings, conf, app_name, report, record, meanwhile)
        elif _engine.conf != conf:
            raise Conflict("Spark is already running in this process with other spark.* settings; stop it first.")
        elif not _engine.jars.issuperset(jars_for(settings)):
            raise Conflict("Spark is already running in this process for a lake on other parts; stop it first.")
        session = _engine.root.newSession()
        for name, value in catalog.items():
            session.conf.set(name, value)
        _engine.sessions.append(session)
        _activate(session)
        return session


def stop_spark(session: "SparkSession") -> None:
    """Stop the session's streams; the last session takes the engine with it. Twice is once."""
    global _engine
    with _lock:
        if _engine is None or session not in _engine.sessions:
            return
        _engine.sessions.remove(session)
        try:
            with _jvm_may_be_gone():
                for query in session.streams.active:
                    query.stop()
        finally:
            if not _engine.sessions:
                engine, _engine = _engine, None
                _stop_engine(engine)


def is_alive(session: "SparkSession") -> bool:
    """Whether the JVM that it is of still runs."""
    return _engine is not None and session in _engine.sessions and not _engine.jvm.how_it_ended()


def how_jvm_ended(patience_seconds: float = 0.0) -> str:
    """Of the engine that this process has started; empty where there is none, or it lives."""
    return _engine.jvm.how_it_ended(patience_seconds) if _engine is not None else ""


@contextmanager
def _jvm_may_be_gone() -> Iterator[None]:
    """To stop what has ended already is no error; whoever worked with it has heard of it."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError:
        raise
    except (Py4JError, ConnectionError, EOFError):
        pass


def _activate(session: "SparkSession") -> None:
    """Iceberg looks a catalog up in the thread's active session, else in the default one, whichever it is given."""
    java = session._get_j_spark_session_class(session._jvm)
    java.setDefaultSession(session._jsparkSession)
    java.setActiveSession(session._jsparkSession)


def engine_conf(settings: Settings) -> dict[str, str]:
    """What the engine is started with; `[spark.conf]` has the last word. Pure, unless s3.ca_file asks for a store."""
    cores = os.cpu_count() or 1
    # One slot more than cores: the log's stream goes on while model tasks hold the others.
    master = settings.text("spark.master") or f"local[{cores + 1}]"
    conf = {
        "spark.master": master,
        "spark.driver.memory": f"{settings.whole('spark.memory_mb')}m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.pyspark.python": sys.executable,
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": DAEMON,
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.minBatchesToRetain": "10",  # notes that nobody goes back to
        "spark.scheduler.mode": "FAIR",
        "spark.driver.maxResultSize": "0",  # batches are cut so that what comes of them fits
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES),
        **{f"spark.executorEnv.{name}": value for name, value in ONE_THREAD.items()},
    }
    if is_local(master) or on_loopback(master):
        conf |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    conf |= {"spark.sql.shuffle.partitions": str(cores)} if is_local(master) else CLUSTER
    conf |= dict(settings.section("spark.conf"))
    return conf | trusting_conf(settings, conf)


def _start_engine(
    settings: Settings,
    conf: dict[str, str],
    app_name: str,
    report: Callable[[str], None],
    record: Path | None,
    meanwhile: Callable[[], None] | None,
) -> _Engine:
    given = conf | {"spark.local.dir": _local_directories(conf)}
    if was_submitted():
        # spark-submit has started the JVM, with the jars and the archive of the line that `submit` made: there the
        # user's own jars stand beside ours.
        on_the_line = jars_conf(settings, conf["spark.master"], ())
        given = {name: value for name, value in given.items() if name not in on_the_line}
        jvm: Jvm | SubmittedJvm = SubmittedJvm()
        distributed = {"spark.pyspark.python": PYTHON} if is_shipped(settings, conf["spark.master"]) else {}
    else:
        java = check_java()
        jars = resolve_jars(jars_for(settings), report=report)
        distributed = _distributed(settings, conf["spark.master"], jars, report)
        jvm = launch(Launch(java, jars, given, settings.lake / "logs", record))
    if meanwhile is not None:
        threading.Thread(target=meanwhile, name="while the JVM boots", daemon=True).start()
    try:
        root = _connect(jvm, given | distributed | {"spark.app.name": app_name})
    except BaseException:
        jvm.stop()
        raise
    atexit.register(jvm.stop)
    _write_no_checksums(root)
    return _Engine(jvm, conf, frozenset(jars_for(settings)), root)


def _local_directories(conf: dict[str, str]) -> str:
    """Where the driver keeps blocks: in directories of this process's own, so that a kill leaves nothing for good."""
    chosen = os.environ.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir") or tempfile.gettempdir()
    return ",".join(str(scratch_in(parent.strip())) for parent in chosen.split(","))


def _distributed(
    settings: Settings, master: str, jars: Sequence[Path], report: Callable[[str], None]
) -> dict[str, str]:
    """What executors on other machines are given; `[spark.conf]` has the last word."""
    if is_local(master):
        return {}
    chosen = settings.section("spark.conf")
    shipped = shipped_conf(settings, master, report)
    return jars_conf(settings, master, jars) | {name: chosen.get(name, value) for name, value in shipped.items()}


def _connect(jvm: Jvm | SubmittedJvm, conf: dict[str, str]) -> "SparkSession":
    # Imported here, while the JVM boots: half a second that overlaps.
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise Conflict(
            "Another Spark session is running in this process. To run inside it: lake.run(spark=session). Else stop it"
            " first, or use another process."
        )
    quiet_pyspark()
    interrupt_one_connection()
    os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    port, secret = jvm.address()
    with _environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret), _own_interrupt():
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
        context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())), gateway=gateway)
    return SparkSession(context)


def _write_no_checksums(session: "SparkSession") -> None:
    """Hadoop puts a second file beside each one, with its checksums; Parquet and Avro have their own inside."""
    jvm: Any = session._jvm
    conf: Any = session.sparkContext._jsc.hadoopConfiguration()
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(conf).setWriteChecksum(False)


def _stop_engine(engine: _Engine) -> None:
    try:
        with _jvm_may_be_gone():
            engine.root.stop()
    finally:
        _forget_engine(engine)


def _forget_engine(engine: _Engine) -> None:
    """What pyspark keeps of it in this process, so that another can be started; a JVM that is gone is asked nothing."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    if gateway is not None:
        gateway.shutdown()
    engine.jvm.stop()
    atexit.unregister(engine.jvm.stop)


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """pyspark reads a running gateway's address from the environment; nobody else should."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """SparkContext takes SIGINT for itself; who handled it before goes on handling it."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
