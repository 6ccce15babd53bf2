"""The spark-submit line of a lake: what must be known before the driver starts, and nothing else.

The driver reads the lake's settings itself, so that passwords stay in their file and off the line.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headwater import errors
from headwater.errors import InvalidRequest
from headwater.settings import Settings
from headwater.storage.spark.jars import spark_home
from headwater.storage.spark.packed_environment import is_local, jars_conf
from headwater.storage.spark.session import LOOPBACK, engine_conf

# Spark reads these before the program runs: set by the program they come too late.
EARLY: Final = ("spark.driver.", "spark.submit.", "spark.yarn.", "spark.kubernetes.")


def submit_line(
    settings: Settings, jars: Sequence[Path], shipped: dict[str, str], arguments: Sequence[str]
) -> list[str]:
    """Pure: `arguments` are those of `headwater run`."""
    conf = engine_conf(settings) | shipped
    if is_local(conf["spark.master"]):
        raise InvalidRequest("A cluster is needed to submit to: name it with --master spark://host:7077")
    early = {name: value for name, value in conf.items() if name.startswith(EARLY) and name != "spark.driver.memory"}
    pythons = {"spark.pyspark.driver.python": sys.executable, "spark.pyspark.python": conf["spark.pyspark.python"]}
    given = jars_conf(settings, conf["spark.master"], jars)
    classes = ["--jars", given["spark.jars"]] if "spark.jars" in given else _class_path(given, jars)
    archives = ["--archives", conf["spark.archives"]] if "spark.archives" in conf else []
    return [
        str(spark_home() / "bin" / "spark-submit"),
        *("--master", conf["spark.master"]),
        *("--driver-memory", conf["spark.driver.memory"]),
        *classes,
        *archives,
        *(part for name, value in sorted((early | pythons).items()) for part in ("--conf", f"{name}={value}")),
        str(Path(errors.__file__).parent / "submitted.py"),
        *("--lake", str(settings.lake)),
        *arguments,
    ]


def _class_path(given: dict[str, str], jars: Sequence[Path]) -> list[str]:
    """The driver's, and that of executors which read the same files."""
    executors = [part for name, value in given.items() for part in ("--conf", f"{name}={value}")]
    return ["--driver-class-path", os.pathsep.join(map(str, jars)), *executors]


def submit_environment(settings: Settings, java: Path) -> dict[str, str]:
    """Beside the process's own: the Java that was checked, and loopback where the driver is bound to it."""
    local = engine_conf(settings).get("spark.driver.bindAddress") == LOOPBACK
    return {"JAVA_HOME": str(java.parent.parent), "SPARK_HOME": str(spark_home())} | (
        {"SPARK_LOCAL_IP": LOOPBACK} if local else {}
    )
