"""Models that fit the port, cheap and deterministic; they note every call in the file that their option `calls` names,
or else HEADWATER_CALLS."""

import hashlib
import os
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from headwater.domain.locator import Locator, Segment
from headwater.flow.models.port import ModelCard, Picture, Said, Sound


def _note(digest: str, calls: str) -> None:
    if path := calls or os.environ.get("HEADWATER_CALLS"):
        with open(path, "a", encoding="ascii") as file:
            file.write(f"{digest}\n")
    if slow := os.environ.get("HEADWATER_SLOW_SECONDS"):
        time.sleep(float(slow))


class CheapSpeech:
    """Says the loudness of a call in words."""

    card: Final = ModelCard("cheap-speech", "1", accepts="speech", produces="text")

    def __init__(self, calls: str = "") -> None:
        self._calls = calls

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[Sound]) -> list[Said]:
        return [self._hear(sound) for sound in batch]

    def _hear(self, sound: Sound) -> Said:
        samples = np.concatenate(list(sound.blocks))
        _note(hashlib.sha256(samples.tobytes()).hexdigest(), self._calls)
        text = f"a call of loudness {int(np.abs(samples.astype(np.int64)).mean())}"
        return Said(text, confidence=0.5, segments=(Segment(text, Locator(start_ms=0, end_ms=sound.duration_ms)),))


class CheapReader:
    """Says the mean colour of a picture in words."""

    card: Final = ModelCard("cheap-reader", "1", accepts="picture", produces="text")

    def __init__(self, calls: str = "") -> None:
        self._calls = calls

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[Picture]) -> list[Said]:
        return [self._see(picture) for picture in batch]

    def _see(self, picture: Picture) -> Said:
        _note(hashlib.sha256(np.ascontiguousarray(picture).tobytes()).hexdigest(), self._calls)
        colour: Any = picture.reshape(-1, 3).mean(axis=0).astype(int).tolist()
        text = f"a picture of colour {colour}"
        return Said(text, confidence=1.0, segments=(Segment(text),))


class LouderSpeech(CheapSpeech):
    """A better model of the same kind, which is to be paid by the second."""

    card: Final = ModelCard(  # type: ignore[misc]
        "louder-speech", "2", accepts="speech", produces="text", price=0.01, price_unit="audio_second"
    )

    def _hear(self, sound: Sound) -> Said:
        said = super()._hear(sound)
        text = said.text.replace("a call", "one long call")
        return Said(text, "en", 0.9, (Segment(text, Locator(start_ms=0, end_ms=sound.duration_ms)),), tokens=7)


class FormerSpeech(CheapSpeech):
    """One that is to be let go."""

    card: Final = ModelCard("former-speech", "1", accepts="speech", produces="text")  # type: ignore[misc]


class DeafSpeech(CheapSpeech):
    """Answers with something unusable."""

    card: Final = ModelCard("deaf-speech", "1", accepts="speech", produces="text")  # type: ignore[misc]

    def _hear(self, sound: Sound) -> Said:
        super()._hear(sound)
        return Said("never mind", confidence=7.0)


class CheapEmbedder:
    """A vector that its text's letters draw; not so cheap that its answers would not be remembered."""

    LENGTH: Final = 16

    def __init__(self, version: str = "1", calls: str = "") -> None:
        self._calls = calls
        self.card = ModelCard(
            "cheap-embedder",
            version,
            accepts="text",
            produces="vector",
            parameters={"dimension": self.LENGTH},
            batch_items=8,
        )

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[str]) -> list[Any]:
        return [self._place(text) for text in batch]

    def _place(self, text: str) -> Any:
        _note(hashlib.sha256(text.encode()).hexdigest(), self._calls)
        seed = hashlib.sha256(f"{self.card.version} {text}".encode()).digest()
        drawn = np.random.default_rng(list(seed)).normal(size=self.LENGTH).astype(np.float32)
        return drawn / np.linalg.norm(drawn)


class CheapClip:
    """Places pictures by their mean colour, and the names of colours where such pictures are."""

    COLOURS: Final = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
    card: Final = ModelCard(
        "cheap-clip", "1", accepts="picture", produces="vector", parameters={"dimension": 4}, batch_items=8
    )

    def __init__(self, calls: str = "") -> None:
        self._calls = calls

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[Picture | str]) -> list[Any]:
        return [self._placed(item) for item in batch]

    def _placed(self, item: Picture | str) -> Any:
        if isinstance(item, str):
            named = [colour for name, colour in self.COLOURS.items() if name in item.lower()]
            place = np.array([*(named[0] if named else (0, 0, 0)), 0 if named else 1], np.float32)
        else:
            _note(hashlib.sha256(np.ascontiguousarray(item).tobytes()).hexdigest(), self._calls)
            place = np.array([*item.reshape(-1, 3).mean(axis=0), 0], np.float32)
        return place / max(1.0, float(np.linalg.norm(place)))


class StuckReader(CheapReader):
    """Reads four pictures, and never comes back from the fifth."""

    card: Final = ModelCard("stuck-reader", "1", accepts="picture", produces="text")  # type: ignore[misc]

    def __init__(self) -> None:
        super().__init__()
        self._read = 0

    def _see(self, picture: Picture) -> Said:
        self._read += 1
        if self._read > 4:
            time.sleep(3_600)
        return super()._see(picture)


class HangingSpeech(CheapSpeech):
    """Hears the first of it, and never answers."""

    card: Final = ModelCard("hanging-speech", "1", accepts="speech", produces="text")  # type: ignore[misc]

    def _hear(self, sound: Sound) -> Said:
        next(sound.blocks)
        time.sleep(3_600)
        raise AssertionError


class WaitingSpeech(CheapSpeech):
    """Of a loud call it says that it is at work, and waits for the file that `sign` names; it asks for all time."""

    card: Final = ModelCard("waiting-speech", "1", accepts="speech", produces="text")  # type: ignore[misc]

    def __init__(self, sign: str, calls: str = "") -> None:
        super().__init__(calls)
        self._sign = sign

    def _hear(self, sound: Sound) -> Said:
        said = super()._hear(sound)
        if int(said.text.rpartition(" ")[2]) > 5_000:
            _note("loud at work", self._calls)
            while not os.path.exists(self._sign):
                time.sleep(0.05)
        return said
