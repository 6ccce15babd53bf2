"""An environment for each peer, made once under the scratch directory: `python -m venv` and pinned packages.

A path file lets it import this repository's benchmarks and steps, in worker processes too, whatever a peer does with
PYTHONPATH.
"""

import hashlib
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Final

from peers import job

BENCHMARKS: Final = Path(__file__).resolve().parents[1]
PATHS: Final = (BENCHMARKS, BENCHMARKS.parent / "src")
INSTALL_SECONDS: Final = 1_800


def python_for(packages: tuple[str, ...], scratch: Path) -> Path:
    """The interpreter that has them; without packages, the one that runs. Raises RuntimeError where pip fails."""
    if not packages:
        return Path(sys.executable)
    wanted = [*packages, *(f"{name}=={metadata.version(name)}" for name in job.NEEDS)]
    name = packages[0].partition("==")[0]
    key = hashlib.sha256(" ".join(wanted).encode()).hexdigest()[:8]
    place = scratch / "environments" / f"{name}-{key}"
    if not (place / "complete").exists():
        _make(place, wanted)
    _site_packages(place).joinpath("headwater-benchmarks.pth").write_text("".join(f"{path}\n" for path in PATHS))
    return place / "bin" / "python"


def _make(place: Path, wanted: list[str]) -> None:
    _run([sys.executable, "-m", "venv", "--clear", str(place)])
    _run([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted])
    (place / "complete").touch()


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"installing took more than {INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise RuntimeError(f"installing failed: {said[-1][:200] if said else 'pip said nothing'}")


def _site_packages(place: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
