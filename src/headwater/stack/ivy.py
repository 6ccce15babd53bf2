"""Ivy: a server's jars with all that they depend on, from the public repository into the user's cache.

Ivy comes with Spark and knows the repository, so no host is named here.
"""

import hashlib
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.errors import Unavailable
from headwater.storage.io.cache import remove_unfinished
from headwater.storage.io.java import check_java
from headwater.storage.spark.jars import FETCHING, spark_home

FETCH_SECONDS: Final = 900
_MAVEN: Final = "http://ant.apache.org/ivy/maven"


@dataclass(frozen=True, slots=True)
class Module:
    """With what it needs to run. `beside` names, by their classifiers, files that come beside its main one."""

    group: str
    artifact: str
    revision: str
    beside: tuple[str, ...] = ()


def fetch(target: Path, modules: Sequence[Module], sha256: str) -> None:
    """All jars or none: the directory appears when it is complete and its bytes are the expected ones.

    `sha256` is of the lines `<sha256>  <file>` of all jars, sorted by file: what a module depends on is pinned with it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_unfinished(target.parent, FETCHING)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=FETCHING) as scratch:
        jars = Path(scratch, "jars")
        log = _run_ivy(Path(scratch), jars, modules)
        found = _digest(jars)
        if found != sha256:
            wanted = f"{modules[0].artifact} {modules[0].revision}"
            raise Unavailable(
                f"{wanted} did not arrive whole: {len(list(jars.glob('*.jar')))} jars, expected={sha256[:16]}"
                f" found={found[:16]}. Check the network and try again. Ivy said: {log[-300:]}"
            )
        jars.rename(target)


def _run_ivy(scratch: Path, jars: Path, modules: Sequence[Module]) -> str:
    ivy = next((spark_home() / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        raise Unavailable(f"{spark_home()} has no Ivy to fetch jars with; install pyspark again: make setup")
    wanted = scratch / "ivy.xml"
    wanted.write_bytes(_ivy_file(modules))
    options = ["-error", "-confs", "default", "-cache", str(scratch / "ivy"), "-ivy", str(wanted)]
    retrieve = ["-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
    command = [str(check_java().executable), "-jar", str(ivy), *options, *retrieve]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        return f"nothing for {FETCH_SECONDS} s"
    return done.stdout + done.stderr


def _ivy_file(modules: Sequence[Module]) -> bytes:
    """`default(runtime)`: what is needed to run, not to build or to test."""
    ET.register_namespace("m", _MAVEN)
    root = ET.Element("ivy-module", version="2.0")
    ET.SubElement(root, "info", organisation="headwater", module="stack")
    ET.SubElement(ET.SubElement(root, "configurations"), "conf", name="default")
    dependencies = ET.SubElement(root, "dependencies")
    for module in modules:
        wanted = {"org": module.group, "name": module.artifact, "rev": module.revision}
        one = ET.SubElement(dependencies, "dependency", {**wanted, "conf": "default->default(runtime)"})
        for classifier in ("", *module.beside) if module.beside else ():
            file = {"name": module.artifact, "type": "jar", "ext": "jar"}
            ET.SubElement(one, "artifact", file | ({f"{{{_MAVEN}}}classifier": classifier} if classifier else {}))
    return ET.tostring(root)


def _digest(jars: Path) -> str:
    lines = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(jars.glob("*.jar")))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
