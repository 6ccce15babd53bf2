"""LanceDB, imported without what no lake calls of it.

Of three seconds that `import lancedb` takes, two and a half go into a client for catalogs behind HTTP (hundreds of
pydantic models), into pandas, and into checks that a method overrides another, which Python itself has from 3.12 on.
Stand-ins take their place while LanceDB is imported:

- a class of the HTTP client becomes a name that loads the real class when it is called, subclassed or asked,
- `@override` becomes what it is in later Pythons: a mark,
- pandas is loaded by who uses it, and pyarrow is told then.

Whoever imports LanceDB, pandas or the client before, or later, has the real ones. Where anything of this fails, with a
LanceDB that is built otherwise, it is imported as everybody does.
"""

import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from headwater import telemetry
from headwater.storage.index.pandas_later import import_without_pandas

_CLIENT: Final = "lance_namespace_urllib3_client"
_OVERRIDES: Final = "overrides"
_IMPORTING: Final = threading.Lock()


def import_lancedb() -> ModuleType:
    with _IMPORTING:
        if "lancedb" not in sys.modules:
            try:
                _import_lightly()
            except Exception as error:
                telemetry.note("index.import", level="debug", detail=f"{type(error).__name__}: {error}")
                _forget("lancedb", "lance_namespace", _CLIENT)
        return importlib.import_module("lancedb")


def _import_lightly() -> None:
    import_without_pandas("pyarrow.dataset")
    with _stand_ins():
        importlib.import_module("lancedb")


class LaterClass:
    """Stands for a class that is loaded when somebody uses it."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def _real(self) -> Any:
        return getattr(importlib.import_module(self._module), self._name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._real()(*given, **named)

    def __getattr__(self, name: str) -> Any:
        # What is asked of every annotation and every decorated thing, and must not load it.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._real(), name)

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, self._real())

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._real(),)

    def __repr__(self) -> str:
        return f"<{self._module}.{self._name}, loaded when it is used>"


class _ClientModule(ModuleType):
    """Any module of the HTTP client; whatever is imported from it is a `LaterClass`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return LaterClass(self.__name__, name)


class _StandIns(MetaPathFinder, Loader):
    """Found by the thread that imports LanceDB, before the real ones."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots
        self._thread = threading.get_ident()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if threading.get_ident() != self._thread or fullname.partition(".")[0] not in self._roots:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name) if spec.name == _OVERRIDES else _ClientModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == _OVERRIDES:
            module.__dict__.update(override=lambda method: method, EnforceOverrides=type("EnforceOverrides", (), {}))


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Those that nobody has loaded for real; afterwards, whoever imports them has the real ones."""
    roots = [name for name in (_CLIENT, _OVERRIDES) if name not in sys.modules]
    finder = _StandIns(roots)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _forget(*roots)


def _forget(*roots: str) -> None:
    """But a library of machine code, which a process can load once only."""
    for name in [name for name in sys.modules if name.partition(".")[0] in roots and name != "lancedb._lancedb"]:
        del sys.modules[name]
