"""The job that every arm does: call, picture or chat line in, one row out. Runs in every arm's environment.

The steps are Headwater's own functions with the cheap models of the benchmarks, so an environment needs this
repository's `src` and `benchmarks` on its path, and `NEEDS` installed; nothing else of Headwater.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from features import CallFeatures, PictureFeatures

from headwater.domain.modality import classify
from headwater.flow.derive.chat import message_result
from headwater.flow.derive.registry import function_of
from headwater.flow.derive.source import Limits, Source
from headwater.flow.models.port import ModelCard, Said, Samples, Sound

NEEDS: Final = ("numpy", "av", "pillow", "pillow-heif", "py3langid")  # at the versions of the environment that measures
FIELDS: Final = ("text", "duration_ms", "width", "height")
DONE: Final = ("probe", "transcribe", "caption")  # steps; others, such as vectors of pictures, are off unless asked for
COLUMNS: Final = ("id", *FIELDS)
FIRST: Final = "features:CallFeatures"
CHANGED: Final = "peers.job:OtherCallFeatures"

Row = tuple[str, str, int | None, int | None, int | None]


class OtherCallFeatures:
    """The call step after a change: the features of before and how loud the loudest moment is."""

    card: Final = ModelCard("call-features", "2", accepts="speech", produces="text")

    def load(self) -> None:
        pass

    def run(self, batch: Iterable[Sound]) -> list[Said]:
        return [self._hear(np.concatenate(list(sound.blocks))) for sound in batch]

    def _hear(self, samples: Samples) -> Said:
        (said,) = CallFeatures().run([Sound(iter([samples]))])
        return Said(f"{said.text} peak {int(np.abs(samples.astype(np.int32)).max())}")


def facts(name: str, data: bytes, changed: bool = False) -> dict[str, Any]:
    """`FIELDS` of a call or a picture, by the steps of its kind."""
    modality, content_type = classify(name) or (None, "")
    assert modality is not None, name
    source = Source(data, content_type, Limits.from_settings({}))
    found: dict[str, Any] = {}
    for step in (step for step in modality.steps if step.name in DONE):
        found |= function_of(modality, step)(source, cast(Any, _MODELS[changed])) or {}
    return {field: found.get(field) for field in FIELDS}


def message_id(line: str) -> str:
    return f"chat-{line.split(maxsplit=1)[0]}"


def message(line: str) -> dict[str, Any]:
    """A chat line's row, by its step, which also finds the language."""
    return {"id": message_id(line), "text": str(message_result(line)["text"])}


@dataclass(frozen=True, slots=True)
class _Models:
    """What a step asks for its model."""

    calls: Any
    pictures: Any

    def loaded(self, setting: str) -> Any:
        return {"models.transcribe": self.calls, "models.caption": self.pictures}[setting]


_MODELS: Final = {
    changed: _Models(OtherCallFeatures() if changed else CallFeatures(), PictureFeatures()) for changed in (False, True)
}


def proof(rows: Iterable[Row]) -> dict[str, Any]:
    """How many rows, and one hash over them in order of their ids; features are rounded where they are written."""
    lines = sorted(json.dumps(row, ensure_ascii=False) for row in rows)
    return {"rows": len(lines), "hash": hashlib.sha256("\n".join(lines).encode()).hexdigest()}


def records(table: Any) -> Iterator[Row]:
    """Rows of an Arrow table that has `COLUMNS`, or fewer where the rest is empty."""
    for row in table.to_pylist():
        yield (row["id"], row["text"], *(None if row.get(name) is None else int(row[name]) for name in FIELDS[1:]))
