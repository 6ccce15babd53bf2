"""The JVM under Spark: launched directly, silent, and gone when Python is gone.

Spark's own launcher starts a shell and a first JVM only to compute the command line of the second; that line is known
here, so it is given at once, and pyspark is imported while the JVM boots.
Invariant: the JVM does not outlive Python. Its stdin is a pipe that only this process holds, and its gateway exits when
that closes; this takes a second, in which a job could still commit, so on Linux the kernel kills it at once if Python
is killed. A session of its own keeps the terminal's Ctrl-C away from it.
"""

import ctypes
import hashlib
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Final

from headwater.errors import Unavailable
from headwater.storage.io.cache import cache_directory
from headwater.storage.io.java import Java
from headwater.storage.io.scratch import scratch_directory
from headwater.storage.spark.jars import EMBEDDED, spark_home

START_SECONDS: Final = 120
PR_SET_PDEATHSIG: Final = 1
STOP_SECONDS: Final = 20
OUTPUT_BYTES: Final = 16 << 20
_GATEWAY_PORT: Final = "PYSPARK_GATEWAY_PORT"
_GATEWAY_SECRET: Final = "PYSPARK_GATEWAY_SECRET"
# Writing the archive happens while the JVM exits, and takes a minute on a busy machine.
RECORD_SECONDS: Final = 600
# As Spark's launcher passes them, without jdk.incubator.vector, which only Spark's linear algebra uses: it warns.
MODULE_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            "java.base/java.lang",
            "java.base/java.lang.invoke",
            "java.base/java.lang.reflect",
            "java.base/java.io",
            "java.base/java.net",
            "java.base/java.nio",
            "java.base/java.util",
            "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic",
            "java.base/jdk.internal.ref",
            "java.base/sun.nio.ch",
            "java.base/sun.nio.cs",
            "java.base/sun.security.action",
            "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dderby.connection.requireAuthentication=false",
)
# The optimising compiler waits until code is 40 times as hot as by default. It took a third of a start's CPU for code
# that never ran long; a start now costs what it does without that compiler, and long jobs still get it.
LATE_OPTIMISING: Final = (
    "-XX:Tier4InvocationThreshold=200000",
    "-XX:Tier4MinInvocationThreshold=24000",
    "-XX:Tier4CompileThreshold=600000",
    "-XX:Tier4BackEdgeThreshold=1600000",
)
# One thread in each worker: with BLAS threads unpinned a small step costs three times the CPU.
ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


@dataclass(frozen=True, slots=True)
class Launch:
    """What a JVM is launched with. `record` names the archive to write at exit instead of the one to read."""

    java: Java
    jars: Sequence[Path]
    conf: Mapping[str, str]
    logs: Path
    record: Path | None = None


@dataclass(frozen=True, slots=True)
class Jvm:
    """A running JVM. `exchange` is the directory in which its gateway says where it listens."""

    process: "subprocess.Popen[bytes]"
    exchange: Path
    output: Path
    stop_seconds: float = STOP_SECONDS

    def address(self) -> tuple[int, str]:
        """The gateway's port and secret, as soon as it listens; raises Unavailable where it does not come up."""
        note = self.exchange / "gateway"
        deadline = time.monotonic() + START_SECONDS
        while not note.is_file():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise Unavailable(f"Spark's JVM did not start: {_first_words(self.output)} Its output: {self.output}")
            time.sleep(0.02)
        content = note.read_bytes()
        shutil.rmtree(self.exchange, ignore_errors=True)
        port, length = struct.unpack_from("!ii", content)
        return port, content[8 : 8 + length].decode()

    def how_it_ended(self, patience_seconds: float = 0.0) -> str:
        """Empty while it lives. One that was killed refuses connections for a while before it is seen to be gone."""
        try:
            code = self.process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            return ""
        if code == -signal.SIGKILL:
            return f"it was killed, perhaps by the system for want of memory (its output: {self.output})"
        return f"exit code {code}: {_first_words(self.output)} (its output: {self.output})"

    def stop(self) -> None:
        """Closing stdin is the gateway's signal to exit; what does not go is killed."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            self.process.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.exchange, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class SubmittedJvm:
    """The JVM of spark-submit, which started this Python and ends when it ends."""

    def address(self) -> tuple[int, str]:
        return int(os.environ[_GATEWAY_PORT]), os.environ[_GATEWAY_SECRET]

    def how_it_ended(self, patience_seconds: float = 0.0) -> str:
        """It starts us and ends us: while somebody asks, it lives."""
        return ""

    def stop(self) -> None:
        pass


def was_submitted() -> bool:
    """Whether spark-submit started this process; it says in the environment where its JVM listens."""
    return _GATEWAY_PORT in os.environ


def class_path(jars: Sequence[Path]) -> list[Path]:
    """In a fixed order, because an archive fits one order only: what every lake has, Spark's, and then what a lake on
    other parts has besides, since the JVM takes an archive whose class path is the beginning of its own."""
    ours = _embedded(jars)
    hadoop = [Path(os.environ[name]) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if name in os.environ]
    besides = [jar for jar in jars if jar not in ours]
    return [*ours, *sorted((spark_home() / "jars").glob("*.jar")), *hadoop, *besides]


_RECORDED: Final = 3  # counted up when the run that is recorded changes: an archive of the old one is made again


def archive_file(java: Java, jars: Sequence[Path]) -> Path:
    """The class-data archive of this environment. It names absolute paths, so it lives and dies with them."""
    inside = sys.prefix != sys.base_prefix
    directory = Path(sys.prefix) / "var" / "headwater" if inside else cache_directory() / "archives"
    recorded = class_path(_embedded(jars))
    identity = "\n".join([str(_RECORDED), java.version, str(java.executable), *map(str, recorded)])
    return directory / f"spark-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"


def _embedded(jars: Sequence[Path]) -> list[Path]:
    names = {jar.file_name for jar in EMBEDDED}
    return [jar for jar in jars if jar.name in names]


def launch(request: Launch) -> Jvm:
    """Start the JVM and return at once; `Jvm.address` waits for it."""
    request.logs.mkdir(parents=True, exist_ok=True)
    exchange = Path(tempfile.mkdtemp(prefix="jvm-", dir=scratch_directory()))
    environment = {
        **os.environ,
        **ONE_THREAD,
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONNECT_MODE": "0",
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(exchange / "gateway"),
    }
    if blocks := request.conf.get("spark.local.dir"):
        environment["SPARK_LOCAL_DIRS"] = blocks  # or the user's own would have the last word
    if local := request.conf.get("spark.driver.bindAddress"):
        environment |= {"SPARK_LOCAL_IP": local, "SPARK_LOCAL_HOSTNAME": local}
    output = request.logs / "spark.out"
    output.unlink(missing_ok=True)
    with output.open("ab") as sink:  # appending, so that what is cut off stays off
        process = subprocess.Popen(
            _command(request),
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=_die_with_parent(),  # noqa: PLW1509 - one system call, safe between fork and exec
        )
    bound_output(output, lambda: process.poll() is None)
    return Jvm(process, exchange, output, RECORD_SECONDS if request.record else STOP_SECONDS)


def bound_output(
    output: Path, living: Callable[[], bool], *, bytes_most: int = OUTPUT_BYTES, seconds: float = 30
) -> None:
    """Set aside what the JVM and its workers printed, once it is long: a stream runs for months."""

    def look() -> None:
        while living():
            time.sleep(seconds)
            with suppress(OSError):
                if output.stat().st_size > bytes_most:
                    shutil.copyfile(output, output.with_name(f"{output.name}.1"))
                    os.truncate(output, 0)

    threading.Thread(target=look, name="bound spark.out", daemon=True).start()


def _die_with_parent() -> Callable[[], object] | None:
    # The kernel's signal follows the thread that started the JVM, so only the main thread, which lives as long as the
    # process, may ask for it.
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    return partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGKILL)


def _command(request: Launch) -> list[str]:
    chosen = shlex.split(request.conf.get("spark.driver.extraJavaOptions", ""))
    collector = () if any(re.match(r"-XX:\+Use\w+GC", option) for option in chosen) else ("-XX:+UseSerialGC",)
    with resources.as_file(resources.files("headwater.storage.spark") / "log4j2.properties") as logging:
        options = [
            f"-Xmx{request.conf['spark.driver.memory']}",
            *collector,
            *_sharing(request),
            *LATE_OPTIMISING,
            *MODULE_OPTIONS,
            f"-Dlog4j2.configurationFile={logging.as_uri()}",
            f"-Dheadwater.log={request.logs / 'spark.log'}",
            f"-Djava.io.tmpdir={scratch_directory()}",
            *chosen,
        ]
    classes = os.pathsep.join(map(str, class_path(request.jars)))
    submit = ["org.apache.spark.deploy.SparkSubmit", "--master", request.conf["spark.master"], "pyspark-shell"]
    return [str(request.java.executable), *options, "-cp", classes, *submit]


def _sharing(request: Launch) -> list[str]:
    if request.record is not None:
        return [f"-XX:ArchiveClassesAtExit={request.record}"]
    archive = archive_file(request.java, request.jars)
    # An archive that does not fit is ignored by the JVM: the start is slower, never wrong.
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off"] if archive.is_file() else []


def _first_words(output: Path) -> str:
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines() if line.strip()]
    return (lines or ["it said nothing."])[0][:200]
