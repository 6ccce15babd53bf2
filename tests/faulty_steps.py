"""Steps that misbehave, for a sandbox that is told of them by name. They are in no registry of the product."""

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any

from headwater.errors import DataFault, Unavailable
from headwater.flow.models.waiting import waiting


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
    source.allow(2.0)
    time.sleep(1.5)
    return {"heard": True}


def never_enough(source: Any, models: Any) -> dict[str, Any]:
    """Claims more and more, as a file without end would."""
    while True:
        source.allow(1_000.0)
        time.sleep(0.1)


def reads_and_hangs(source: Any, models: Any) -> dict[str, Any]:
    for page in range(1, 4):
        source.keep(lambda page=page: {"pages": page})
        time.sleep(0.25)
    time.sleep(600)
    return {}


def reads_and_crashes(source: Any, models: Any) -> dict[str, Any]:
    source.keep(lambda: {"pages": 1})
    return crash(source, models)


def on_the_phone(source: Any, models: Any) -> dict[str, Any]:
    """Waits for another machine, longer than a batch has patience."""
    source.allow(5.0)
    with waiting():
        time.sleep(2.5)
    return {"called": True}


def slowly(source: Any, models: Any) -> dict[str, Any]:
    """Takes its time, and writes a line each time that it is begun into the file that the source names."""
    source.allow(10.0)
    with Path(source.content.decode()).open("a") as file:
        file.write("begun\n")
    time.sleep(2.5)
    return {"slowly": True}


def variables(source: Any, models: Any) -> dict[str, Any]:
    return {"variables": dict(os.environ)}


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


def unloadable(source: Any, models: Any) -> dict[str, Any]:
    models.loaded("bad_models:UnloadableSpeech")
    return {}


def deadly_to_load(source: Any, models: Any) -> dict[str, Any]:
    models.loaded("bad_models:DeadlyToLoad")
    return {}
