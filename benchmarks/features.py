"""Cheap feature steps for the benchmarks: some numpy over a call or a picture, told as a line of text."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from headwater.flow.models.port import ModelCard, Picture, Said, Sound

FRAME: Final = 512


class CallFeatures:
    card: Final = ModelCard("call-features", "1", accepts="speech", produces="text")

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[Sound]) -> list[Said]:
        return [Said(_hear(np.concatenate(list(sound.blocks)))) for sound in batch]


class PictureFeatures:
    card: Final = ModelCard("picture-features", "1", accepts="picture", produces="text")

    def load(self) -> None:
        pass

    def run(self, batch: Sequence[Picture]) -> list[Said]:
        return [Said(_see(picture)) for picture in batch]


def _hear(samples: np.ndarray) -> str:  # type: ignore[type-arg]
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float32)
    spectrum = np.abs(np.fft.rfft(frames * np.hanning(FRAME).astype(np.float32), axis=1))
    energy = float(np.sqrt((frames**2).mean()))
    centroid = float((spectrum * np.arange(spectrum.shape[1])).sum() / max(spectrum.sum(), 1e-9))
    crossings = int((np.diff(np.signbit(frames), axis=1)).sum())
    return f"call energy {energy:.1f} centroid {centroid:.2f} crossings {crossings}"


def _see(picture: Picture) -> str:
    grey = picture.astype(np.float32).mean(axis=2)
    edges = float(np.abs(np.diff(grey, axis=1)).mean() + np.abs(np.diff(grey, axis=0)).mean())
    histogram = np.histogram(grey, bins=8, range=(0, 255))[0].tolist()
    return f"picture brightness {grey.mean():.2f} edges {edges:.3f} histogram {histogram}"
