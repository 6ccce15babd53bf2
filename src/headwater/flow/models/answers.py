"""Answers: what a model said, judged before anything is done with it.

Reads   whatever a model's `run` returned, ours or somebody else's; and what the memo kept of it
Gives   the same as plain values that every table takes: numbers in range, valid text, times that can be
Invariant: what passes here can be remembered and committed. What does not is a DataFault BAD_OUTPUT, which costs one
row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, NoReturn

import numpy as np

from headwater.domain.locator import Locator, Segment
from headwater.errors import DataFault, HeadwaterError, ModelNotLoaded, Unavailable, describe
from headwater.flow.models.port import Embedded, Model, ModelCard, Said, Vector

# Far beyond what anybody says, shows or bills, and far within what the tables' columns and the sums over them hold.
LETTERS_MAX: Final = 20_000_000
SEGMENTS_MAX: Final = 1_000_000
LANGUAGE_LETTERS: Final = 64
SPEAKER_LETTERS: Final = 64
SECTION_LETTERS: Final = 1_000
TOKENS_MAX: Final = 10**12
ATTEMPTS_MAX: Final = 10**6
MILLISECONDS_MAX: Final = 10**12  # thirty years
PAGES_MAX: Final = 10**9
PIXELS_MAX: Final = 1e9
NUMBERS_MAX: Final = 1 << 16  # of a vector
AMOUNT_MAX: Final = 1e15  # seconds, or money

_LOCATOR: Final = tuple(Locator.__dataclass_fields__)


@contextmanager
def model_faults() -> Iterator[None]:
    """Around a model's `run`: what it raises besides what the port allows is a model that crashed on its input."""
    try:
        yield
    except (DataFault, Unavailable, MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a model that exits, or whose own task was cancelled
        raise DataFault("CRASHED", describe(error)) from error


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Around a model's `load`: what keeps it from its work is no fault of what it was to work on, which waits."""
    try:
        yield
    except (HeadwaterError, KeyboardInterrupt):
        raise
    except MemoryError as error:
        raise ModelNotLoaded(
            f"The model {name} cannot be loaded: it needs more memory than limits.child_mb. Raise that, then try again."
        ) from error
    except BaseException as error:
        raise ModelNotLoaded(
            f"The model {name} cannot be loaded: {describe(error)} Mend it, then try again; the rest: logs/spark.out"
        ) from error


def list_answers(answers: object, asked: int) -> list[Any]:
    """As many answers as were asked for, unjudged; a model may give them as any kind of sequence."""
    with _as_bad_output():
        if answers is None or isinstance(answers, str | bytes | Mapping) or not isinstance(answers, Iterable):
            _refuse("it gave", type(answers).__name__, "not a list of answers")
        listed = list(islice(answers, asked + 1))
        if len(listed) != asked:
            found = f"more than {asked}" if len(listed) > asked else str(len(listed))
            raise DataFault("BAD_OUTPUT", f"The model gave {found} answers to {asked} inputs.")
        return listed


def checked_answers(answers: object, asked: int, card: ModelCard) -> list[Any]:
    """Said or Embedded, one for each input, all of them good."""
    listed = list_answers(answers, asked)
    if card.produces == "vector":
        return [checked_embedded(answer, card.dimension) for answer in listed]
    return [checked_said(answer) for answer in listed]


def checked_said(answer: object) -> Said:
    """Segments come in the order of their times, whatever order a model gave them in."""
    with _as_bad_output():
        if not isinstance(answer, Said):
            _refuse("it answered with", type(answer).__name__, "not with text")
        text = checked_text(answer.text, "text", LETTERS_MAX)
        segments = _segments(answer.segments)
        if sum(len(segment.text) for segment in segments) > LETTERS_MAX:
            _refuse("its segments together have", "letters", f"more than {LETTERS_MAX:,}")
        return Said(
            text,
            None if answer.language is None else checked_text(answer.language, "language", LANGUAGE_LETTERS),
            None if answer.confidence is None else _number(answer.confidence, "confidence", 0, 1),
            segments,
            checked_whole(answer.tokens, "tokens", TOKENS_MAX),
            checked_whole(answer.attempts, "attempts", ATTEMPTS_MAX),
        )


def checked_embedded(answer: object, dimension: int | None) -> Embedded:
    """A bare vector counts as one that took nothing. `dimension` is how long it must be, where that is known.

    Raises the DataFault that stands in the place of an answer.
    """
    with _as_bad_output():
        if isinstance(answer, DataFault):
            raise answer
        embedded = answer if isinstance(answer, Embedded) else Embedded(answer)  # type: ignore[arg-type]
        return Embedded(
            _vector(embedded.vector, dimension),
            checked_whole(embedded.tokens, "tokens", TOKENS_MAX),
            checked_whole(embedded.attempts, "attempts", ATTEMPTS_MAX),
        )


def ask_vector(model: Model, text: str) -> Vector:
    """Where a model places one text, for who looks for what lies near; raises as `run` does, and BAD_OUTPUT."""
    return ask_vectors(model, [text])[0]


def ask_vectors(model: Model, texts: Sequence[str]) -> list[Vector]:
    with model_faults():
        answers = list_answers(model.run(texts), len(texts))
        return [checked_embedded(answer, model.card.dimension).vector for answer in answers]


def checked_amount(value: object, what: str) -> float:
    """Seconds or money."""
    return _number(value, what, 0, AMOUNT_MAX)


def checked_whole(value: object, what: str, most: int) -> int:
    """Not below zero; a fraction of a millisecond is dropped."""
    return int(_number(value, what, 0, most))


def checked_text(value: object, what: str, most: int) -> str:
    if not isinstance(value, str):
        _refuse(f"its {what} is", type(value).__name__, "not a text")
    if len(value) > most:
        _refuse(f"its {what} has", f"{len(value):,} letters", f"{most:,} would be many")
    try:
        return value.encode().decode()
    except UnicodeEncodeError as error:
        _refuse(f"its {what} is", "no valid Unicode", error.reason)


def said_of(row: Mapping[str, Any]) -> Said:
    """A row's columns as the answer that they were made of, judged."""
    with _as_bad_output():
        segments = row.get("segments")
        parts = tuple(_segment_of(part) for part in segments) if isinstance(segments, list) else segments or ()
        confidence, language = row.get("confidence"), row.get("language")
        counts = row.get("tokens", 0), row.get("attempts", 1)
        return checked_said(Said(row["text"], language, confidence, parts, *counts))


def _vector(vector: object, dimension: int | None) -> Vector:
    """One that would not poison an index. A zero is allowed: a text without a word lies nowhere."""
    numbers = np.asarray(vector)
    if numbers.dtype.kind not in "fiu":
        _refuse("its vector is made of", numbers.dtype, "not of numbers")
    if numbers.ndim != 1 or not 0 < len(numbers) <= NUMBERS_MAX:
        _refuse("its vector has the shape", numbers.shape, "which is no vector's")
    if dimension is not None and len(numbers) != dimension:
        _refuse("its vector has", f"{len(numbers)} numbers", f"it promises {dimension}")
    with np.errstate(over="ignore"):
        small: Vector = numbers.astype(np.float32)
    if not np.isfinite(small).all():
        _refuse("its vector holds", "numbers", "that are not finite")
    return small


def _segment_of(part: Any) -> Segment:
    return Segment(part["text"], Locator(**{name: part.get(name) for name in _LOCATOR}))


def _segments(given: object) -> tuple[Segment, ...]:
    if not isinstance(given, list | tuple):
        _refuse("its segments are", type(given).__name__, "not a list")
    if len(given) > SEGMENTS_MAX:
        _refuse("it gave", f"{len(given):,} segments", f"{SEGMENTS_MAX:,} would be many")
    checked = [_segment(part) for part in given]
    if any(part.locator.start_ms is None for part in checked):
        return tuple(checked)
    return tuple(sorted(checked, key=lambda part: part.locator.start_ms or 0))


def _segment(part: object) -> Segment:
    if not isinstance(part, Segment) or not isinstance(part.locator, Locator):
        _refuse("a segment of it is", type(part).__name__, "not a text with its place")
    place = part.locator
    start, end = (_moment(place.start_ms, "start_ms"), _moment(place.end_ms, "end_ms"))
    if start is not None and end is not None and end < start:
        _refuse("a segment of it ends", f"at {end} ms", f"before it begins at {start} ms")
    page = None if place.page is None else checked_whole(place.page, "page", PAGES_MAX)
    speaker = None if place.speaker is None else checked_text(place.speaker, "speaker", SPEAKER_LETTERS)
    section = None if place.section is None else checked_text(place.section, "section", SECTION_LETTERS)
    locator = Locator(start, end, page, _moment(place.frame_ms, "frame_ms"), _box(place.box), speaker, section)
    return Segment(checked_text(part.text, "a segment's text", LETTERS_MAX), locator)


def _box(box: Any) -> tuple[float, float, float, float] | None:
    if box is None:
        return None
    sides = [_number(side, "a side of a box", -PIXELS_MAX, PIXELS_MAX) for side in islice(box, 5)]
    if len(sides) != 4:
        _refuse("a box of it has", f"{len(sides)} sides", "not four")
    left, top, right, bottom = sides
    return left, top, right, bottom


def _moment(value: object, what: str) -> int | None:
    return None if value is None else checked_whole(value, what, MILLISECONDS_MAX)


def _number(value: object, what: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        _refuse(f"its {what} is", type(value).__name__, "not a number")
    if not least <= value <= most:  # NaN is not, and a whole number of any length is compared exactly
        _refuse(f"its {what} is", _brief(value), f"it must be between {least:g} and {most:g}")
    return float(value)


def _brief(value: Any) -> str:
    """Of a number that may have thousands of digits."""
    try:
        return f"{float(value):g}"
    except OverflowError:
        return "beyond all numbers"


def _refuse(what: str, found: object, wanted: str) -> NoReturn:
    raise DataFault("BAD_OUTPUT", f"The model's answer cannot be used: {what} {found}, {wanted}.")


@contextmanager
def _as_bad_output() -> Iterator[None]:
    """Whatever an answer's own code raises while it is looked at is the answer's fault, unless it says otherwise."""
    try:
        yield
    except (HeadwaterError, MemoryError):
        raise
    except Exception as error:
        raise DataFault("BAD_OUTPUT", f"The model's answer cannot be looked at: {describe(error)}.") from error
