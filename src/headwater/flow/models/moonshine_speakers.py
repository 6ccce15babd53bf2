"""Who speaks when, told from voices alone, by the library in Moonshine's wheel: its networks for that are part of it.

Only this is asked of it; words are heard by `moonshine_network`. Its structures are those of the release that set-up
pins, 0.0.71, whose version is in the model's card. It is loaded by itself, because the package's own import wants a
sound card's driver and clients for the network.
"""

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from headwater.errors import InternalError, Unavailable
from headwater.flow.models.port import SAMPLE_RATE, Samples

HEADER_VERSION: Final = 20_000
TINY: Final = 0
FORCE_UPDATE: Final = 1
UPDATE_SAMPLES: Final = 10 * SAMPLE_RATE  # what it is given at once; it looks at all of that together
OPTIONS: Final = {"identify_speakers": "true"}
SHORTEST_MS: Final = 400  # a turn below is a cough or the edge of another's word: it stays with who spoke before


@dataclass(frozen=True, slots=True)
class Turn:
    """A stretch of sound in which one voice speaks; voices are numbered as they come."""

    start: int
    end: int
    speaker: int


class _Option(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class _Span(ctypes.Structure):
    _fields_ = [
        ("start_time", ctypes.c_float),
        ("duration", ctypes.c_float),
        ("speaker_id", ctypes.c_uint64),
        ("speaker_index", ctypes.c_uint32),
        ("start_char", ctypes.c_uint64),
        ("end_char", ctypes.c_uint64),
    ]


class _Line(ctypes.Structure):
    _fields_ = [
        ("text", ctypes.c_void_p),
        ("audio_data", ctypes.c_void_p),
        ("audio_data_count", ctypes.c_size_t),
        ("start_time", ctypes.c_float),
        ("duration", ctypes.c_float),
        ("id", ctypes.c_uint64),
        ("flags", ctypes.c_int8 * 5),
        ("spans", ctypes.POINTER(_Span)),
        ("span_count", ctypes.c_uint64),
        ("latency_ms", ctypes.c_uint32),
        ("words", ctypes.c_void_p),
        ("word_count", ctypes.c_uint64),
    ]


class _Transcript(ctypes.Structure):
    _fields_ = [("lines", ctypes.POINTER(_Line)), ("line_count", ctypes.c_uint64)]


class Speakers:
    """The library with its networks loaded."""

    def __init__(self, package: Path, weights: Path) -> None:
        name = "libmoonshine.dylib" if sys.platform == "darwin" else "libmoonshine.so"
        try:
            self._library = ctypes.CDLL(str(package / name))
        except OSError as error:
            raise Unavailable(
                f"{name}, which tells speakers apart, cannot be loaded: {error}. Install moonshine-voice again, or "
                "take diarise = true out of the model's section."
            ) from error
        options = (_Option * len(OPTIONS))(*(_Option(key.encode(), value.encode()) for key, value in OPTIONS.items()))
        self._transcriber = self._checked(
            "load_transcriber_from_files", str(weights).encode(), TINY, options, len(OPTIONS), HEADER_VERSION
        )

    @contextmanager
    def listen(self) -> Iterator["Listener"]:
        """To one recording, from its beginning."""
        stream = self._checked("create_stream", self._transcriber, 0)
        try:
            self._checked("start_stream", self._transcriber, stream)
            yield Listener(self, stream)
        finally:
            self._checked("free_stream", self._transcriber, stream)

    def add(self, stream: int, samples: Samples) -> None:
        sound = np.ascontiguousarray(samples, np.float32) / np.float32(32768)
        place = sound.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self._checked(
            "transcribe_add_audio_to_stream",
            self._transcriber, stream, place, ctypes.c_uint64(len(sound)), SAMPLE_RATE, 0,
        )  # fmt: skip

    def spans(self, stream: int) -> list[Turn]:
        self.update(stream)  # after the end, it looks at nothing that it has not looked at before
        self._checked("stop_stream", self._transcriber, stream)
        found = self.update(stream)
        lines = found.contents.lines[: found.contents.line_count] if found else []
        return [_turn(span) for line in lines for span in line.spans[: line.span_count]]

    def update(self, stream: int) -> Any:
        """What is known of all that was added."""
        found = ctypes.POINTER(_Transcript)()
        self._checked("transcribe_stream", self._transcriber, stream, FORCE_UPDATE, ctypes.byref(found))
        return found

    def _checked(self, name: str, *values: Any) -> int:
        answer = int(getattr(self._library, f"moonshine_{name}")(*values))
        if answer < 0:
            raise InternalError(f"Moonshine's library fails in {name} with {answer}. Take diarise = true out.")
        return answer


class Listener:
    """Hears a recording block by block, and tells in the end who spoke when. How blocks are cut changes nothing."""

    def __init__(self, speakers: Speakers, stream: int) -> None:
        self._speakers = speakers
        self._stream = stream
        self._room = UPDATE_SAMPLES

    def passed(self, blocks: Iterator[Samples]) -> Iterator[Samples]:
        """The same blocks, listened to on their way."""
        for block in blocks:
            rest = block
            while len(rest):
                piece, rest = rest[: self._room], rest[self._room :]
                self._listen(piece)
            yield block

    def _listen(self, piece: Samples) -> None:
        self._speakers.add(self._stream, piece)
        self._room -= len(piece)
        if not self._room:
            self._speakers.update(self._stream)
            self._room = UPDATE_SAMPLES

    def turns(self) -> list[Turn]:
        return joined(self._speakers.spans(self._stream))


def joined(spans: Sequence[Turn]) -> list[Turn]:
    """In the order of time, without overlap: who begins while another speaks has his turn when he goes on alone.

    Voices are numbered anew, as they come.
    """
    turns: list[Turn] = []
    numbers: dict[int, int] = {}
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        start = max(span.start, turns[-1].end if turns else 0)
        if span.end - start < SHORTEST_MS * SAMPLE_RATE // 1000:
            continue
        speaker = numbers.setdefault(span.speaker, len(numbers))
        if turns and turns[-1].speaker == speaker:
            turns[-1] = Turn(turns[-1].start, span.end, speaker)
        else:
            turns.append(Turn(start, span.end, speaker))
    return turns


def parts(first: int, length: int, turns: Sequence[Turn]) -> Iterator[tuple[int, int, int | None]]:
    """A stretch of sound by who speaks in it: where each part begins and ends, and its voice.

    It is cut where one turn ends and another's begins, in the middle between the two.
    """
    end = first + length
    within = [turn for turn in turns if turn.start < end and turn.end > first]
    edges = [(one.end + other.start) // 2 for one, other in pairwise(within)]
    cuts = [first, *(min(max(edge, first), end) for edge in edges), end]
    speakers: list[int | None] = [turn.speaker for turn in within] or [None]
    for (begin, after), speaker in zip(pairwise(cuts), speakers, strict=True):
        if after > begin:
            yield begin, after, speaker


def _turn(span: _Span) -> Turn:
    start, end = span.start_time, span.start_time + span.duration
    return Turn(int(start * SAMPLE_RATE), int(end * SAMPLE_RATE), span.speaker_index)
