"""Spark as somebody else has it: started by what `headwater connect --spark` prints, in a process of its own.

The packages that they name come from this user's cache of jars, by a resolver of Ivy's: no test needs a network.
"""

import os
import subprocess
import sys
from pathlib import Path

from headwater.storage.spark.jars import jars_directory

_IVY = """<ivysettings>
  <settings defaultResolver="jars"/>
  <caches defaultCacheDir="{cache}"/>
  <resolvers><filesystem name="jars" m2compatible="true" checkmodified="false">
    <artifact pattern="{jars}/[artifact]-[revision].[ext]"/>
  </filesystem></resolvers>
</ivysettings>
"""


def run_script(code: str, scratch: Path, *arguments: str | Path, python: str = sys.executable) -> str:
    """What the code printed, in a process whose Spark has the settings that a user's own may have; it must end well."""
    ivy = scratch / "ivysettings.xml"
    ivy.write_text(_IVY.format(cache=scratch / "ivy", jars=jars_directory()))
    chosen = {"spark.jars.ivySettings": ivy, "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    conf = [word for name, value in chosen.items() for word in ("--conf", f"{name}={value}")]
    environment = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": " ".join(["--master", "local[3]", *conf, "pyspark-shell"]),
        "PYSPARK_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(scratch),
    }
    line = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment, cwd=scratch)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-6000:]}"
    return "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith("::"))  # Ivy's words
