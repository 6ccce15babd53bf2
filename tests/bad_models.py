"""Models of somebody else's that answer with whatever comes to their mind: each input draws another kind of nonsense.

They are good again once the file that their option `mended` names is there; their fingerprint stays the same.
"""

import asyncio
import ctypes
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from headwater.domain.locator import Locator, Segment
from headwater.errors import DataFault, Unavailable
from headwater.flow.models.port import Embedded, ModelCard, Said, Sound


def _raise(error: BaseException) -> Any:
    raise error


class _Exits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def _place(**place: Any) -> Any:
    return Said("hello", segments=(Segment("hello", Locator(**place)),))


def _any(**fields: Any) -> Any:
    return Said(**{"text": "hello", **fields})


# By the loudness of a call, which says which of them it gets.
SPOKEN: Final[dict[str, Any]] = {
    "a segment that ends at 1e17": lambda: [_place(start_ms=0, end_ms=int(1e17 * 1000))],
    "tokens beyond all numbers": lambda: [_any(tokens=10**30)],
    "half a character": lambda: [_any(text="half \ud800")],
    "half a character in an error": lambda: _raise(ValueError("half \ud800")),
    "half a character in a fault": lambda: _raise(DataFault("BAD_OUTPUT", "half \ud800")),
    "a reason that nobody knows": lambda: _raise(DataFault("MOOD", "not today")),
    "slow, it says, however long one waits": lambda: _raise(DataFault("SLOW", "tomorrow")),
    "a reason that is no word": lambda: _raise(DataFault(["MOOD"], "not today")),  # type: ignore[arg-type]
    "cancelled": lambda: _raise(asyncio.CancelledError()),
    "an error that exits when it is read": lambda: _raise(_Exits()),
    "nothing": lambda: None,
    "nothing in a list": lambda: [None],
    "too many": lambda: [_any(), _any()],
    "not a number": lambda: [_any(confidence=math.nan)],
    "a very long text": lambda: [_any(text="la " * 1_000_000)],
    "nested junk": lambda: [_any(segments=[{"text": {"text": [{}]}}])],
    "a language that is none": lambda: [_any(language=["en"])],
}
GOOD: Final[dict[str, Any]] = {
    "a plain text": lambda: [_any()],
    "numbers of numpy": lambda: np.array([_any(confidence=np.float32(0.5), tokens=np.int64(3))], dtype=object),
}
WRITTEN: Final[dict[str, Any]] = {
    "not a number": lambda: np.full(4, np.nan),
    "too short": lambda: np.ones(3),
    "tokens beyond all numbers": lambda: Embedded(np.ones(4, np.float32), tokens=10**30),
    "nothing": lambda: None,
    "words": lambda: ["a", "b", "c", "d"],
    "cancelled": lambda: _raise(asyncio.CancelledError()),
    "no memory": lambda: _raise(MemoryError()),
    "no money, though nobody counts it": lambda: _raise(DataFault("OVER_BUDGET", "not today")),
    "slow": lambda: _raise(DataFault("SLOW", "tomorrow")),
    "a log line's fault": lambda: _raise(DataFault("BAD_EVENT", "not mine")),
    "down until yesterday": lambda: _raise(Unavailable("not for this one", after_seconds=-1)),
    "down until somebody knows when": lambda: _raise(Unavailable("not for this one", after_seconds=None)),  # type: ignore[arg-type]
    "half a character in an error": lambda: _raise(ValueError("half \ud800")),
    "half a character in a fault": lambda: _raise(DataFault("BAD_OUTPUT", "half \ud800")),
}


class StrangeSpeech:
    """The loudness of a call is the number of its answer."""

    card: Final = ModelCard("strange-speech", "1", accepts="speech", produces="text")

    def __init__(self, mended: str = "") -> None:
        self._mended = mended

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[Sound]) -> Any:
        loudness = int(np.concatenate(list(batch[0].blocks))[0])
        answers = list({**SPOKEN, **GOOD}.values())
        return [_any(text="mended")] if Path(self._mended).exists() else answers[loudness - 1]()


class StrangeEmbedder:
    """A text says by itself what comes of it."""

    card: Final = ModelCard(
        "strange-embedder", "1", accepts="text", produces="vector", parameters={"dimension": 4}, batch_items=8
    )

    def __init__(self, mended: str = "") -> None:
        self._mended = mended

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[str]) -> Any:
        mended = Path(self._mended).exists()
        return [WRITTEN[text]() if text in WRITTEN and not mended else np.ones(4) for text in batch]


class UnfinishedEmbedder(StrangeEmbedder):
    """Its weights are gone until it is mended."""

    card: Final = replace(StrangeEmbedder.card, name="unfinished-embedder")  # type: ignore[misc]

    def load(self) -> None:
        if not Path(self._mended).exists():
            raise RuntimeError("half \ud800 of the weights are missing")


class DeadlyEmbedder(StrangeEmbedder):
    """Takes its whole process with it, whatever it is asked."""

    card: Final = replace(StrangeEmbedder.card, name="deadly-embedder")  # type: ignore[misc]

    def run(self, batch: Sequence[str]) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class BrokenInWorkers(StrangeEmbedder):
    """Where its class is only looked at, in a worker of Spark's, it takes that with it."""

    card: Final = replace(StrangeEmbedder.card, name="broken-in-workers")  # type: ignore[misc]

    def __init__(self, mended: str = "") -> None:
        super().__init__(mended)
        if "headwater.flow.daemon" in sys.orig_argv:
            os.kill(os.getpid(), signal.SIGKILL)


class FragileEmbedder(StrangeEmbedder):
    """Some texts are too much for it, each in its own way; others it places."""

    card: Final = replace(StrangeEmbedder.card, name="fragile-embedder", batch_items=16)  # type: ignore[misc]

    def run(self, batch: Sequence[str]) -> Any:
        return [self._place(text) for text in batch]

    def _place(self, text: str) -> Any:
        if not self._mended or not Path(self._mended).exists():
            if "segfault" in text:
                ctypes.string_at(0)
            if "killed for memory" in text:
                os.kill(os.getpid(), signal.SIGKILL)
            if "hang" in text:
                time.sleep(3_600)
            if "exit" in text:
                os._exit(3)
            if "closes its pipes" in text:
                os.closerange(3, 64)
                time.sleep(3_600)
            if "glutton" in text:
                self._eaten = np.ones(1 << 29)  # 4 GB
        return np.ones(4)


class SlowEmbedder(StrangeEmbedder):
    """Takes its time for every text, and answers all."""

    card: Final = replace(StrangeEmbedder.card, name="slow-embedder", batch_items=16)  # type: ignore[misc]

    def run(self, batch: Sequence[str]) -> Any:
        time.sleep(0.2 * len(batch))
        return [np.ones(4) for _ in batch]


class UnloadableSpeech(StrangeSpeech):
    """Its weights are no weights."""

    def load(self) -> None:
        raise RuntimeError("these are no weights")


class DeadlyToLoad(StrangeSpeech):
    def load(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)
