"""The code of a model of one's own: where it is found, and what of it tells one model from another.

Such a model is named by its place, `module:Class`. Its module is looked for as Python does, then in the lake's
directory and where the user stands; that directory is searched only where the module named lies in it, so that nothing
else there is ever taken for a package. Its source, and that of the modules beside it which it imports, is part of its
fingerprint: code that changed makes other rows.
"""

import hashlib
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headwater.flow.models.port import Model, ModelCard

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_IMPORT: Final = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n(;#]+)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
_look_in: list[str] = []  # of this process; what others are to search is told them with the model's options


def is_own(kind: str) -> bool:
    """Whether a model is named by its place, and that is not in Headwater itself."""
    return ":" in kind and not kind.startswith("headwater.")


def look_in(*directories: Path) -> None:
    """Where modules named by a place may lie, beside where Python looks."""
    _look_in[:] = [str(directory) for directory in directories]


def search(directory: str) -> None:
    """From now on this process finds modules there, after all other places."""
    if directory and directory not in sys.path:
        sys.path.append(directory)


def make_findable(place: str) -> None:
    """Search the first of the known directories that has the module, where Python has it nowhere."""
    top = place.partition(":")[0].partition(".")[0]
    if top in sys.modules or find_spec(top) is not None:
        return
    for directory in _look_in:
        if PathFinder.find_spec(top, [directory]) is not None:
            search(directory)
            return


def directory_of(place: str) -> str:
    """Where its module, or the package that this is in, lies; nothing where that cannot be told."""
    module = sys.modules.get(place.partition(":")[0])
    file = getattr(module, "__file__", None)
    if module is None or not file:
        return ""
    deep = module.__name__.count(".") + (Path(file).name == "__init__.py")
    return str(Path(file).absolute().parents[deep])


def sources_of(place: str) -> dict[str, Path]:
    """By name from their directory: the module's file, and those beside it that it imports, and they import.

    Of a package that is installed only what is in that package counts: what else is installed has versions of its own.
    """
    name, root = place.partition(":")[0], Path(directory_of(place))
    inside = name.partition(".")[0] if _INSTALLED & set(root.parts) else ""
    found: dict[str, Path] = {}
    waiting = [name]
    while waiting:
        module = waiting.pop()
        if inside and module.partition(".")[0] != inside:
            continue
        file = _file_of(root, module)
        if file is None or (told := file.relative_to(root).as_posix()) in found:
            continue
        found[told] = file
        waiting += _imports(file, module if file.name == "__init__.py" else module.rpartition(".")[0])
    return found


def code_digest(place: str) -> str:
    """Sixteen hex digits over the source; nothing, and a warning, where there is none to be read."""
    hashed = hashlib.sha256()
    try:
        sources = sources_of(place)
        for name, file in sorted(sources.items()):
            text = file.read_bytes().replace(b"\r\n", b"\n")
            hashed.update(f"{name}={hashlib.sha256(text).hexdigest()}\n".encode())
    except OSError:
        sources = {}
    if not sources:
        warnings.warn(
            f"The source of {place} cannot be read, so a change of it goes unseen: raise its card's version with it.",
            UserWarning,
            stacklevel=2,
        )
        return ""
    return hashed.hexdigest()[:16]


class OwnModel:
    """A model of one's own, whose card tells its code too; all else is the model's."""

    def __init__(self, inner: "Model", code: str) -> None:
        self.inner = inner
        self._code = code

    @property
    def card(self) -> "ModelCard":
        card = self.inner.card
        return card if card.code or not self._code else replace(card, code=self._code)

    def load(self) -> None:
        self.inner.load()

    def run(self, batch: Sequence[Any]) -> Sequence[Any]:
        return self.inner.run(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _file_of(root: Path, module: str) -> Path | None:
    """Without a name it is the root itself, as `from . import` in a module there says; beside that lies none."""
    stem = root.joinpath(*module.split("."))
    files = [stem / "__init__.py"] if stem == root else [stem.with_name(f"{stem.name}.py"), stem / "__init__.py"]
    return next((file for file in files if file.is_file()), None)


def _imports(file: Path, package: str) -> Iterator[str]:
    """The modules that a file names in its imports; of `from a import b` also a.b, which may be one.

    Read as text: Python's own parser is not for several threads at a time before 3.12. A line of a docstring that looks
    like an import does no harm.
    """
    for base, names, plain in _IMPORT.findall(file.read_text(encoding="utf-8", errors="replace")):
        if plain:
            yield from (name.split()[0] for name in plain.split(",") if name.split())
            continue
        level = len(base) - len(base.lstrip("."))
        near = package.split(".")[: len(package.split(".")) - level + 1] if level else []
        whole = ".".join(filter(None, [*near, base.lstrip(".")]))
        yield whole
        yield from (
            f"{whole}.{name.split()[0]}".lstrip(".") for name in names.strip("() \n").split(",") if name.split()
        )
