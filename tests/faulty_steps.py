"""Steps that misbehave, for a sandbox that is told of them by name. They are in no registry of the product."""

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any

from headwater.errors import DataFault, Unavailable


def fine(source: Any, models: Any) -> dict[str, Any]:
    return {"size": source.size}


def fault(source: Any, models: Any) -> dict[str, Any]:
    raise DataFault("UNREADABLE", "as told")


def crash(source: Any, models: Any) -> dict[str, Any]:
    ctypes.string_at(0)
    return {}


def killed(source: Any, models: Any) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def crash_once(source: Any, models: Any) -> dict[str, Any]:
    """The source's bytes name a file that remembers the first time."""
    mark = Path(source.content.decode())
    if not mark.exists():
        mark.touch()
        ctypes.string_at(0)
    return {"survived": True}


def hang(source: Any, models: Any) -> dict[str, Any]:
    time.sleep(600)
    return {}


def long_media(source: Any, models: Any) -> dict[str, Any]:
    source.allow_media(2_000)
    time.sleep(1.5)
    return {"heard": True}


def greedy(source: Any, models: Any) -> dict[str, Any]:
    held = bytearray()
    while True:
        held += bytes(64 << 20)


def confused(source: Any, models: Any) -> dict[str, Any]:
    raise ValueError("the model is confused")


def unwell(source: Any, models: Any) -> dict[str, Any]:
    raise Unavailable("The endpoint does not answer.")


def noisy(source: Any, models: Any) -> dict[str, Any]:
    os.write(1, b"a library prints\n" * 1000)
    return {"noise": True}


def threads(source: Any, models: Any) -> dict[str, Any]:
    return {"threads": os.environ["OMP_NUM_THREADS"]}


def pid(source: Any, models: Any) -> dict[str, Any]:
    return {"pid": os.getpid()}


def fetch(pointer: Any) -> bytes:
    if pointer["path"] == "store-down":
        raise Unavailable("The raw store does not answer.")
    return str(pointer["path"]).encode()
