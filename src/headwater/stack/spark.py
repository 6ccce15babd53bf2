"""A standalone Spark cluster: one master and two workers, from the jars of this environment's own pyspark.

Writes  <stack>/spark-master, <stack>/spark-worker-1, <stack>/spark-worker-2
Whoever may connect to loopback may submit jobs to it.
"""

import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, ClassVar, Final

from headwater.stack.part import Part, Report
from headwater.stack.process import Command
from headwater.stack.state import LOOPBACK
from headwater.storage.io.java import check_java
from headwater.storage.spark.jars import EMBEDDED, spark_home
from headwater.storage.spark.jvm import MODULE_OPTIONS

SCALA: Final = "2.13"
WORKER_CORES: Final = 1
WORKER_MEMORY: Final = "1536m"
# What an executor printed is kept for a day and in so much room; a stream's would else grow for as long as it runs.
WORKER_OPTIONS: Final = (
    "-Dspark.worker.cleanup.enabled=true",
    "-Dspark.worker.cleanup.interval=600",
    "-Dspark.worker.cleanup.appDataTtl=86400",
    "-Dspark.executor.logs.rolling.strategy=size",
    f"-Dspark.executor.logs.rolling.maxSize={8 << 20}",
    "-Dspark.executor.logs.rolling.maxRetainedFiles=3",
)
# The daemons only tend executors, which have a heap of their own.
HEAP: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class _SparkPart(Part):
    group = "spark"
    connector = EMBEDDED

    @property
    def master(self) -> str:
        return f"spark://{self.site.address('spark-master')}"

    def version(self) -> str:
        return f"Spark {version('pyspark')}"

    def prepare(self, report: Report) -> None:
        check_java()
        spark_home()

    def initialise(self) -> None:
        """Blocks of runs that a killed worker did not outlive are nobody's; it is not running now."""
        self.directory.mkdir(exist_ok=True)
        for left in self.directory.glob("spark-*"):
            shutil.rmtree(left, ignore_errors=True)

    def _java(self, daemon: str, *arguments: str, options: Sequence[str] = ()) -> Command:
        program = [str(check_java().executable), *MODULE_OPTIONS, *HEAP, "-Dspark.master.rest.enabled=false", *options]
        place = ["--host", LOOPBACK, "--port", str(self.site.ports[self.ports[0]])]
        page = ["--webui-port", str(self.site.ports[self.ports[1]])]
        line = [*program, "-cp", f"{spark_home()}/jars/*", f"org.apache.spark.deploy.{daemon}"]
        environment = {
            "SPARK_HOME": str(spark_home()),
            "SPARK_SCALA_VERSION": SCALA,  # else a worker looks for the build directories of Spark's sources
            "SPARK_LOCAL_IP": LOOPBACK,  # also where its web pages listen
            "SPARK_LOCAL_DIRS": str(self.directory),
            "PYSPARK_PYTHON": sys.executable,
            "PATH": f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', os.defpath)}",
        }
        return Command([*line, *place, *page, *arguments], environment)

    def _master_says(self) -> dict[str, Any]:
        """The master's own account of the cluster; empty where it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.site.address('spark-master-ui')}/json/", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, urllib.error.URLError, ValueError):
            return {}


class SparkMaster(_SparkPart):
    name = "spark-master"
    ports: ClassVar = ("spark-master", "spark-master-ui")

    @property
    def url(self) -> str:
        return self.master

    def command(self) -> Command:
        return self._java("master.Master")

    def is_ready(self) -> bool:
        return self._master_says().get("status") == "ALIVE"

    def settings(self) -> dict[str, str]:
        """The driver must be where the executors look for it: a machine's own name may lead elsewhere."""
        loopback = {f"spark.conf.spark.driver.{name}": LOOPBACK for name in ("host", "bindAddress")}
        return {"spark.master": self.url, **loopback}


class _Worker(_SparkPart):
    # A worker that misses its master asks again only after ten seconds.
    wave = 1

    @property
    def url(self) -> str:
        """Its page; jobs go to the master."""
        return f"http://{self.site.address(self.ports[1])}"

    def command(self) -> Command:
        share = ["--cores", str(WORKER_CORES), "--memory", WORKER_MEMORY, "--work-dir", str(self.directory / "work")]
        return self._java("worker.Worker", *share, self.master, options=WORKER_OPTIONS)

    def is_ready(self) -> bool:
        """The master counts on it; one that was killed stays listed as dead beside its successor."""
        port = self.site.ports[self.name]
        workers = self._master_says().get("workers", [])
        return any(worker["port"] == port and worker["state"] == "ALIVE" for worker in workers)


class FirstWorker(_Worker):
    name = "spark-worker-1"
    ports: ClassVar = ("spark-worker-1", "spark-worker-1-ui")


class SecondWorker(_Worker):
    name = "spark-worker-2"
    ports: ClassVar = ("spark-worker-2", "spark-worker-2-ui")
