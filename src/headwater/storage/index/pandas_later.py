"""Modules of pyarrow, imported without pandas, which pyarrow looks for at its first conversion of a value.

It looks once. So it is told when somebody imports pandas after all; from then on it knows a Series and a DataFrame as
it would have from the start.
"""

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

_PANDAS: Final = "pandas"


def import_without_pandas(module: str) -> None:
    """For a module whose import makes pyarrow look for pandas."""
    if _PANDAS in sys.modules or module in sys.modules:
        importlib.import_module(module)
        return
    with _hidden():
        importlib.import_module(module)
    sys.meta_path.insert(0, _Watcher())


class _Hider(MetaPathFinder):
    """In the thread that made it, pandas is not installed."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname == _PANDAS and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("No module named 'pandas'", name=_PANDAS)
        return None


@contextmanager
def _hidden() -> Iterator[None]:
    hider = _Hider()
    sys.meta_path.insert(0, hider)
    try:
        yield
    finally:
        sys.meta_path.remove(hider)


class _Watcher(MetaPathFinder):
    """Finds pandas where it is, with a loader that tells pyarrow afterwards."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != _PANDAS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Told(spec.loader)
        return spec


class _Told(Loader):
    def __init__(self, real: Any) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._real.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._real
        self._real.exec_module(module)
        with suppress(Exception):  # then pyarrow goes on without; a table's to_pandas looks for itself
            _ = sys.modules["pyarrow.lib"]._pandas_api.version
