"""The seeded corpus of the benchmarks: calls, screenshots and chat lines, made once and kept in a scratch directory."""

import os
import tempfile
import wave
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageDraw

SCRATCH: Final = Path(os.environ.get("HEADWATER_BENCH", Path(tempfile.gettempdir()) / "headwater-bench"))
RATE: Final = 16_000
WORDS: Final = [
    "the",
    "my",
    "invoice",
    "router",
    "account",
    "payment",
    "order",
    "broken",
    "screen",
    "please",
    "refund",
    "update",
    "error",
    "card",
    "login",
]


def make_corpus(calls: int, pictures: int, lines: int, seed: int = 7) -> Path:
    """`calls/*.wav` of 3 to 8 s, `pictures/*.png` of 1024 × 640, `chat.txt`; the same for the same numbers."""
    directory = SCRATCH / f"corpus-{calls}-{pictures}-{lines}-{seed}"
    if (directory / "chat.txt").exists():
        return directory
    random = np.random.default_rng(seed)
    for name in ("calls", "pictures"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    for number in range(calls):
        _call(directory / "calls" / f"call-{number:05d}.wav", random)
    for number in range(pictures):
        _picture(directory / "pictures" / f"shot-{number:05d}.png", random)
    chat = [f"{number} {' '.join(random.choice(WORDS, 12))}" for number in range(lines)]
    (directory / "chat.txt").write_text("\n".join(chat))  # last: its presence says that all is there
    return directory


def _call(path: Path, random: np.random.Generator) -> None:
    seconds = random.uniform(3, 8)
    time = np.arange(int(seconds * RATE)) / RATE
    tone = sum(np.sin(2 * np.pi * random.uniform(80, 2000) * time) for _ in range(3))
    samples = (tone * 4000 + random.normal(0, 300, len(time))).astype(np.int16)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())


def _picture(path: Path, random: np.random.Generator) -> None:
    picture = Image.new("RGB", (1024, 640), tuple(random.integers(200, 255, 3).tolist()))
    draw = ImageDraw.Draw(picture)
    for line in range(18):
        ink = tuple(random.integers(0, 120, 3).tolist())
        draw.text((40, 30 + line * 32), " ".join(random.choice(WORDS, 9)), fill=ink)
    picture.save(path)
