"""Speakers: what was heard on the sides of a call, as one; and what the sides are called.

The memo keeps the number of a side, so that a name which is given later holds for what it remembers too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from headwater.domain.locator import Segment
from headwater.flow.models.port import Said

CHANNEL: Final = "channel "  # before a number that stands for a name


def together(heard: Mapping[int, Said]) -> Said:
    """By channel; segments in the order of their times, each with who says it. Of voices that a model has told apart,
    those of a call that is all on one channel are kept."""
    is_one = len(heard) == 1
    segments = [part for channel, said in heard.items() for part in _spoken(said, f"{CHANNEL}{channel}", is_one)]
    segments.sort(key=lambda segment: segment.locator.start_ms or 0)
    return Said(
        " ".join(segment.text for segment in segments),
        _language(list(heard.values())),
        _confidence(list(heard.values())),
        tuple(segments),
        tokens=sum(said.tokens for said in heard.values()),
        attempts=sum(said.attempts for said in heard.values()),
    )


def with_names(row: Mapping[str, Any], names: str) -> dict[str, Any]:
    """The columns of a transcript, sides by their names: `speech.channel_names`, else the number that they have."""
    if not row.get("segments"):
        return dict(row)
    return {**row, "segments": [{**part, "speaker": _name(part.get("speaker"), names)} for part in row["segments"]]}


def _name(speaker: str | None, names: str) -> str | None:
    if speaker is None or not speaker.startswith(CHANNEL):
        return speaker
    number = speaker.removeprefix(CHANNEL)
    known = dict(enumerate(name.strip() for name in names.split(",")))
    return (known.get(int(number)) if number.isdigit() else None) or number


def _spoken(said: Said, side: str, are_voices_kept: bool) -> list[Segment]:
    parts = said.segments or ((Segment(said.text),) if said.text else ())
    voices = [part.locator.speaker if are_voices_kept else None for part in parts]
    return [
        Segment(part.text, replace(part.locator, speaker=voice or side))
        for part, voice in zip(parts, voices, strict=True)
    ]


def _language(heard: Sequence[Said]) -> str | None:
    """What most of it is in."""
    known = [answer for answer in heard if answer.language is not None]
    return max(known, key=lambda answer: len(answer.text)).language if known else None


def _confidence(heard: Sequence[Said]) -> float | None:
    """Each side by how much it says."""
    weighted = [(each.confidence, len(each.text)) for each in heard if each.confidence is not None and each.text]
    letters = sum(count for _, count in weighted)
    return sum(confidence * count for confidence, count in weighted) / letters if letters else None
