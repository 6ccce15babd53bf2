"""Java: which one starts Spark, and whether it is new enough.

Reads JAVA_HOME, then PATH. The version comes from the JDK's `release` file, because asking `java -version` costs a
process at every start; it is asked only where that file is missing.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.errors import Unavailable

OLDEST_JAVA: Final = 17
REMEDY: Final = "apt-get install openjdk-17-jre-headless"


@dataclass(frozen=True, slots=True)
class Java:
    executable: Path
    version: str

    @property
    def feature(self) -> int:
        """17 for "17.0.15", 8 for "1.8.0_402"."""
        first, _, rest = self.version.partition(".")
        return int(re.match(r"\d*", rest if first == "1" else first).group() or 0)  # type: ignore[union-attr]


def check_java() -> Java:
    """The Java that will run Spark; raises Unavailable where there is none or it is too old."""
    executable = _executable()
    java = Java(executable, _released(executable) or _asked(executable))
    if java.feature < OLDEST_JAVA:
        raise Unavailable(
            f"Java {java.version} found at {executable}; Headwater needs {OLDEST_JAVA} or newer: {REMEDY}"
        )
    return java


def _executable() -> Path:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        where = f"JAVA_HOME is {home}, and it has no bin/java" if home else "Java is missing"
        raise Unavailable(f"{where}; Headwater needs Java {OLDEST_JAVA} or newer: {REMEDY}")
    return Path(found).resolve()


def _released(executable: Path) -> str | None:
    release = executable.parent.parent / "release"
    if not release.is_file():
        return None
    found = re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(errors="replace"), re.MULTILINE)
    return found.group(1) if found else None


def _asked(executable: Path) -> str:
    try:
        answer = subprocess.run([executable, "-version"], check=False, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{executable} does not run ({error}); install Java again: {REMEDY}") from error
    found = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    if found is None:
        raise Unavailable(f"{executable} does not say its version; Headwater needs {OLDEST_JAVA} or newer: {REMEDY}")
    return found.group(1)
