"""The checkpoint of the log's stream: where Spark notes what it has read, made anew at every start.

Writes  <checkpoints.uri>/bronze/<lake>-<start>
The table's own property says where to begin; a note that is older or newer than the table (a restored catalog, a topic
made anew) would only contradict it. So nothing of an earlier start is read again, and it is removed when the next one
begins: a lake has one checkpoint, whatever became of the streams before.
"""

import hashlib
import re
import uuid
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headwater.errors import InvalidRequest, Unavailable
from headwater.settings import Settings

_OF_A_LAKE: Final = re.compile(r"[0-9a-f]{12}-[0-9a-f]{32}")


def fresh_checkpoint(spark: SparkSession, settings: Settings) -> str:
    """An empty place; what this lake had there before is gone. Lakes that share `checkpoints.uri` leave one another
    alone."""
    uri = settings.text("checkpoints.uri")
    # Where Hadoop's own default is another, a bare path would not be on this machine.
    parent = f"{uri if '://' in uri else f'file://{uri}'}/bronze"
    # Its ledger is what makes a lake one.
    lake = hashlib.sha256(settings.text("ledger.uri").encode()).hexdigest()[:12]
    try:
        _remove_earlier(spark, parent, lake)
    except Py4JJavaError as error:
        raise _translation(error, uri) from error
    return f"{parent}/{lake}-{uuid.uuid4().hex}"


def _remove_earlier(spark: SparkSession, parent: str, lake: str) -> None:
    """By Hadoop's file system, which is the one that Spark writes by."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(parent)
    files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if not files.exists(path):
        return
    for found in files.listStatus(path):
        name = str(found.getPath().getName())
        # What has no such name is of a Headwater that knew of no other lakes.
        if name.startswith(f"{lake}-") or not _OF_A_LAKE.fullmatch(name):
            files.delete(found.getPath(), True)


def _translation(error: Py4JJavaError, uri: str) -> Exception:
    message = str(error.java_exception.getMessage()).partition("\n")[0][:200]
    if "No FileSystem for scheme" in message:
        return InvalidRequest(
            f"checkpoints.uri is {uri}, and this Spark has no file system of that kind. Leave the setting out: the"
            " driver alone reads these notes, and every start makes them anew."
        )
    return Unavailable(f"The checkpoint in {uri} cannot be made: {message}. Check the place, then try again.")
