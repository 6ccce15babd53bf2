"""Packed environment: this Python's packages, Headwater and the lake's models in one archive for a cluster's executors.

Reads   the environment's site-packages, the modules that models.*, [model.NAME] and the model book name
Writes  <cache>/environments/<digest>.tar.gz, of which the newest few stay and those that a run uses
Key     what is packed, by name, size and time of each file: packing again what is there already costs a listing.

Packages travel, the interpreter does not: the machines need the same Python (3.11, say) on their PATH. Spark's own jars
stay out, because an executor has them.
"""

import fcntl
import hashlib
import importlib.util
import io
import os
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from headwater import errors
from headwater.errors import InvalidRequest
from headwater.settings import SETTINGS, Settings
from headwater.storage.io.cache import cache_directory, remove_unfinished
from headwater.storage.ledger.ledger import open_ledger
from headwater.storage.ledger.model_book import read_book

NAME: Final = "environment"
PYTHON: Final = f"./{NAME}/bin/python"
_MODEL_SETTINGS: Final = tuple(setting.name for setting in SETTINGS if setting.name.startswith("models."))
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
# Compiled anew where it runs; installers and links into a clone are of no use there.
_LEFT_OUT: Final = ("__pycache__", "pip", "setuptools", "_distutils_hack", "wheel")
_SPARK_LEFT_OUT: Final = ("jars", "examples", "data", "bin", "sbin", "licenses")
_PACKING: Final = ".packing-"
_KEPT: Final = 3
# Fast: the archive is read once by each executor, over a network that is quicker than a stronger compression.
_COMPRESSION: Final = 1

_LAUNCHER: Final = """\
#!/bin/sh
# The packages beside this file, with the machine's own Python.
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}" exec {python} "$@"
"""


def shipped_conf(settings: Settings, master: str, report: Callable[[str], None]) -> dict[str, str]:
    """What tells Spark's executors which Python to run: nothing where they share this machine's."""
    if not is_shipped(settings, master):
        return {}
    archive = pack(site_packages(), own_modules(settings), report)
    return {"spark.archives": f"{archive}#{NAME}", "spark.pyspark.python": PYTHON}


def is_shipped(settings: Settings, master: str) -> bool:
    choice = _choice(settings)
    if is_local(master) or choice == "none":
        return False
    return choice == "packed" or not on_loopback(master)


def jars_conf(settings: Settings, master: str, jars: Sequence[Path]) -> dict[str, str]:
    """How executors get the jars: read where they are if they share this machine's files, else sent to each.

    What is sent stays in an executor's directory when the run is over, for as long as the cluster keeps that.
    """
    shared = on_loopback(master) and _choice(settings) == "auto"
    name, mark = ("spark.executor.extraClassPath", os.pathsep) if shared else ("spark.jars", ",")
    # Those of the user beside ours: an executor without ours could not read a table.
    theirs = settings.section("spark.conf").get(name)
    return {name: mark.join([*map(str, jars), *([theirs] if theirs else [])])}


def _choice(settings: Settings) -> str:
    choice = settings.text("spark.ship")
    if choice not in {"auto", "packed", "none"}:
        raise InvalidRequest(f"spark.ship is {choice}; it must be auto, packed or none.")
    return choice


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's own JVM."""
    return master.partition("[")[0] == "local"


def on_loopback(master: str) -> bool:
    """Whether the cluster is on this machine: its executors see the same files and the same Python."""
    return master.startswith("local-cluster") or urlsplit(master).hostname in _LOOPBACK


def site_packages() -> Path:
    return Path(sysconfig.get_path("platlib"))


def own_modules(settings: Settings) -> dict[str, Path]:
    """Headwater, and the modules of models that are named `module:Class`; by the name they are imported by.

    InvalidRequest where a setting names a module that is not there. What else is not there is nobody's model now: a
    section that no setting names, or a model of the book that was let go.
    """
    found = {"headwater": Path(errors.__file__).parent}
    for name in _MODEL_SETTINGS:
        top = _module_of(settings.text(name))
        if top and top not in found:
            origin = _find_module(top)
            if origin is None:
                raise InvalidRequest(f"{name} is {settings.text(name)}, but there is no module {top} to ship.")
            found[top] = origin
    for top in filter(None, map(_module_of, _other_models(settings))):
        if top not in found and (origin := _find_module(top)) is not None:
            found[top] = origin
    return found


def _other_models(settings: Settings) -> Iterator[str]:
    """A model that was brought in by a replay stands in the book alone."""
    yield from (str(options.get("kind", "")) for options in settings.models.values())
    yield from (model.name for model in read_book(open_ledger(settings.text("ledger.uri"))).models)


def _module_of(place: str) -> str:
    """The outermost package of `package.module:Class`; empty for a model that is known by a name."""
    module, colon, _ = place.partition(":")
    return module.partition(".")[0] if colon else ""


def _find_module(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    return origin.parent if origin.name == "__init__.py" else origin


def pack(site: Path, modules: Mapping[str, Path], report: Callable[[str], None]) -> Path:
    """The archive of these packages and modules, made if it is not there yet."""
    files = dict(sorted([*_of_site(site), *_of_modules(modules)]))
    target = cache_directory() / "environments" / f"{_digest(files)}.tar.gz"
    if not target.is_file():
        _make(target, files, report)
    _hold(target)
    _remove_others(target)
    return target


def _make(target: Path, files: Mapping[str, Path], report: Callable[[str], None]) -> None:
    size = sum(file.stat().st_size for file in files.values())
    report(f"Packing {len(files):,} files ({size >> 20:,} MB) of this environment for the executors (once)")
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_unfinished(target.parent, _PACKING)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=_PACKING, delete=False) as scratch:
        try:
            with tarfile.open(fileobj=scratch, mode="w:gz", compresslevel=_COMPRESSION) as archive:
                _add_launcher(archive)
                for name, file in files.items():
                    archive.add(file.resolve(), f"lib/{name}", recursive=False)
            Path(scratch.name).replace(target)
        except BaseException:
            Path(scratch.name).unlink(missing_ok=True)
            raise


def _hold(archive: Path) -> None:
    """As long as this process lives: executors that come late are sent it too."""
    os.utime(archive)
    fcntl.flock(os.open(archive, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)


def _remove_others(archive: Path) -> None:
    """An archive has hundreds of megabytes, and every change of a file makes another."""
    found = sorted(archive.parent.glob("*.tar.gz"), key=lambda file: file.stat().st_mtime, reverse=True)
    for old in found[_KEPT:]:
        with suppress(OSError), old.open("rb") as file:  # somebody uses it, or was first
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            old.unlink()


def _of_site(site: Path) -> Iterator[tuple[str, Path]]:
    for folder, inner, names in os.walk(site):
        here = Path(folder).relative_to(site)
        left_out = _LEFT_OUT if here.name != "pyspark" else (*_LEFT_OUT, *_SPARK_LEFT_OUT)
        inner[:] = sorted(name for name in inner if name not in left_out)
        for name in names:
            if not name.endswith((".pyc", ".pth")) and not name.startswith("__editable__"):
                yield str(here / name), Path(folder, name)


def _of_modules(modules: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    for name, place in modules.items():
        if place.is_file():
            yield place.name, place
            continue
        for file in place.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"{name}/{file.relative_to(place)}", file


def _digest(files: Mapping[str, Path]) -> str:
    found = hashlib.sha256(_launcher().encode())
    for name, file in files.items():
        facts = file.stat()
        found.update(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
    return found.hexdigest()[:16]


def _launcher() -> str:
    return _LAUNCHER.format(python=f"python{sys.version_info.major}.{sys.version_info.minor}")


def _add_launcher(archive: tarfile.TarFile) -> None:
    content = _launcher().encode()
    entry = tarfile.TarInfo("bin/python")
    entry.size, entry.mode = len(content), 0o755
    archive.addfile(entry, io.BytesIO(content))
