"""Existing session: the flow inside a Spark that somebody else has made, as in a notebook, which stays as it was.

Reads   settings (catalog.*, [spark.conf]), what the session's JVM and its workers have
Writes  nothing
We work in a session of our own beside theirs, on the same context. Its SQL settings are Spark's defaults and ours,
whatever theirs are, so that neither their time zone nor their ANSI mode is in a lake's rows. What belongs to the
context or to their thread, a pool or the active session, is put back; their jobs are never cancelled with ours.
"""

import importlib
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from headwater.errors import InvalidRequest, describe
from headwater.settings import Settings
from headwater.storage.io.certificates import trusting_conf
from headwater.storage.spark.catalog_conf import catalog_conf
from headwater.storage.spark.jars import EMBEDDED, KAFKA, POSTGRES, S3, Jar, jars_for, packages_of
from headwater.storage.spark.packed_environment import is_local
from headwater.storage.spark.session import DAEMON, POOL, engine_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK: Final = "4.0"  # Iceberg's runtime is made for one minor version of Spark
SCALA: Final = "2.13"
_SQL: Final = "spark.sql."
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_CONNECT: Final = "pyspark.sql.connect"
# A class that only this jar has, by which it is known to be there; a driver of JDBC is registered by being loaded.
_CLASSES: Final = {
    EMBEDDED[0]: "org.apache.iceberg.spark.SparkCatalog",
    EMBEDDED[1]: "org.sqlite.JDBC",
    KAFKA[0]: "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    KAFKA[2]: "org.apache.kafka.clients.consumer.KafkaConsumer",
    POSTGRES[0]: "org.postgresql.Driver",
    S3[0]: "software.amazon.awssdk.services.s3.S3Client",
}
# What tells, among the lines of a Java stack, why a worker did not answer.
_TELLING: Final = ("ModuleNotFoundError", "PySparkRuntimeError", "Cannot run program")


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a session has not got, and what gives it."""

    what: str
    way: str


# Sessions of ours beside others', and the tag of their jobs.
_inside: dict["SparkSession", str] = {}
_lock = threading.Lock()


@contextmanager
def session_inside(theirs: "SparkSession", settings: Settings) -> "Iterator[SparkSession]":
    """A session on the lake's tables, beside theirs, until this ends. InvalidRequest where it cannot be."""
    from pyspark import sql

    _check(theirs, settings)
    context: Any = theirs.sparkContext
    sessions: Any = theirs._get_j_spark_session_class(theirs._jvm)
    pool, active, known = context.getLocalProperty(POOL), sessions.getActiveSession(), sql.SparkSession._activeSession
    ours = _new_session(theirs)
    _configure(ours, settings)
    with _lock:
        _inside[ours] = f"headwater-{uuid.uuid4().hex}"
    # Iceberg looks a catalog up in the thread's active session; the default one stays theirs.
    sessions.setActiveSession(ours._jsparkSession)
    try:
        yield ours
    finally:
        with _lock:
            del _inside[ours]
        sql.SparkSession._activeSession = known  # pyspark's own note of it, which every frame that is made changes
        # A JVM that is gone has nothing to put back, and who worked with it has heard of it.
        with suppress(Exception):
            for query in ours.streams.active:
                query.stop()
            context.setLocalProperty(POOL, pool)
            if active.isDefined():
                sessions.setActiveSession(active.get())
            else:
                sessions.clearActiveSession()


def is_inside(session: "SparkSession") -> bool:
    """Whether it is one of ours in a Spark that is not."""
    return session in _inside


def cancel_jobs(session: "SparkSession") -> None:
    """Of this session: all that a Spark of our own does, else those alone that are ours."""
    tag = _inside.get(session)
    if tag is None:
        session.sparkContext.cancelAllJobs()
    else:
        session.interruptAll()  # what was asked by SQL
        session.sparkContext.cancelJobsWithTag(tag)


@contextmanager
def tagged_jobs(session: "SparkSession") -> Iterator[None]:
    """Jobs of this thread that are not SQL's are known as ours, for `cancel_jobs`."""
    tag = _inside.get(session)
    if tag is None:
        yield
        return
    session.sparkContext.addJobTag(tag)
    try:
        yield
    finally:
        session.sparkContext.removeJobTag(tag)


def _new_session(theirs: "SparkSession") -> "SparkSession":
    """Every new session takes `RDD.toDF` for itself; theirs goes on making frames of theirs."""
    from pyspark import RDD

    of_theirs = RDD.toDF
    try:
        return theirs.newSession()
    finally:
        RDD.toDF = of_theirs  # type: ignore[method-assign]


def _configure(ours: "SparkSession", settings: Settings) -> None:
    from pyspark.errors import PySparkException

    conf = ours.conf
    for name in dict(conf.getAll):
        if name.startswith(_SQL):
            with suppress(PySparkException):  # one that nobody can change while Spark runs
                conf.unset(name)
    for name, value in sql_conf(settings, str(ours.sparkContext.master)).items():
        with suppress(PySparkException):
            conf.set(name, value)


def sql_conf(settings: Settings, master: str) -> dict[str, str]:
    """What our own engine's SQL is set to; on a cluster, whatever this machine's cores are, Spark's number of parts."""
    conf = engine_conf(settings) | catalog_conf(settings)
    if not is_local(master):
        conf.pop(_PARTITIONS, None)
    conf |= settings.section("spark.conf")
    return {name: value for name, value in conf.items() if name.startswith(_SQL)}


def _check(theirs: "SparkSession", settings: Settings) -> None:
    from pyspark import sql

    if type(theirs).__module__.startswith(_CONNECT):
        raise InvalidRequest(
            "This is a session of Spark Connect, whose JVM is another machine's; the flow needs one in this process."
            " Give one that SparkSession.builder.master(…) makes, or run without: lake.run()"
        )
    if not isinstance(theirs, sql.SparkSession):
        raise InvalidRequest(f"A run goes on inside a SparkSession, and this is a {type(theirs).__name__}.")
    context: Any = theirs.sparkContext
    if context._jsc is None or context._jsc.sc().isStopped():
        raise InvalidRequest("This Spark session was stopped. Give one that runs, or run without: lake.run()")
    lacks = _lacks(theirs, settings) or _worker_lacks(context)
    if lacks:
        ways = "\n".join(dict.fromkeys(f"  {lack.way}" for lack in lacks))
        raise InvalidRequest(
            f"The flow cannot run inside this Spark session: {'; '.join(lack.what for lack in lacks)}. Make it with"
            f" what `headwater connect --spark` prints, of which it wants:\n{ways}\nOr run without: lake.run()"
        )


def _lacks(theirs: "SparkSession", settings: Settings) -> list[Lack]:
    """What is missing in the driver."""
    from py4j.clientserver import ClientServer

    jvm: Any = theirs._jvm
    found = []
    if not theirs.version.startswith(f"{SPARK}."):
        found.append(Lack(f"it is Spark {theirs.version} and not {SPARK}", f"pyspark=={SPARK}.*"))
    scala = str(jvm.scala.util.Properties.versionNumberString())
    if not scala.startswith(f"{SCALA}."):
        found.append(Lack(f"its Scala is {scala} and not {SCALA}", f"a Spark for Scala {SCALA}"))
    if not isinstance(theirs.sparkContext._gateway, ClientServer):
        found.append(Lack("its threads are not Python's", "PYSPARK_PIN_THREAD=true in the environment, or nothing"))
    packages = f"spark.jars.packages={packages_of(jars_for(settings))}"
    found += [Lack(what, packages) for jar in jars_for(settings) if (what := _jar_lack(jvm, jar))]
    given = theirs.sparkContext.getConf()
    for name, value in trusting_conf(settings, {}).items():
        if value not in (given.get(name) or ""):
            found.append(Lack(f"{name} does not name the authority of s3.ca_file", f"{name}={value}"))
    return found


def _jar_lack(jvm: Any, jar: Jar) -> str:
    """Empty where it is there, in the version that we know."""
    from py4j.protocol import Py4JJavaError

    if jar not in _CLASSES:
        return ""  # what another one brings
    try:
        jvm.java.lang.Class.forName(_CLASSES[jar], True, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError:
        return f"it lacks {jar.artifact} {jar.revision}"
    if jar is EMBEDDED[0]:
        found = str(jvm.org.apache.iceberg.IcebergBuild.version())
        if found.split(".")[:2] != jar.revision.split(".")[:2]:
            return f"its Iceberg is {found} and not {jar.revision}"
    return ""


def _worker_lacks(context: Any) -> list[Lack]:
    """What is missing in its workers, seen by asking one."""
    way = f"PYSPARK_PYTHON={sys.executable} in the environment, before it is made; on other machines spark.archives"
    try:
        (found,) = context.parallelize([None], 1).map(_version).collect()
    except Exception as error:
        return [Lack(f"its workers ({context.pythonExec}) cannot run Headwater: {_last_words(error)}", way)]
    if found != (own := _installed()):
        return [Lack(f"its workers have Headwater {found} and not {own}", way)]
    return []


def _version(_: None) -> str:
    importlib.import_module(DAEMON)  # all that the work needs
    return _installed()


def _installed() -> str:
    """Empty where it stands on the path alone, as a clone may."""
    try:
        return version("headwater")
    except PackageNotFoundError:
        return ""


def _last_words(error: Exception) -> str:
    lines = (line.strip() for line in str(error).splitlines())
    telling = (line for line in lines if any(word in line for word in _TELLING))
    return next(telling, describe(error))[:200]
