"""Documents: their facts, and their text with its pages or sections.

A PDF is read by the model for documents, which may ask another one for scans; what was written as text, by a reader.
"""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

from headwater.domain.locator import Segment
from headwater.domain.steps import EXTRACT
from headwater.errors import DataFault, spelled
from headwater.flow.derive.source import Source
from headwater.flow.derive.step import Effort, StepResult, probed, said_result
from headwater.flow.models.answers import LETTERS_MAX, SEGMENTS_MAX
from headwater.flow.models.documents import SCANS_MAX, count_scans, open_document
from headwater.flow.models.language import tell_language
from headwater.flow.models.loaded import Models
from headwater.flow.models.port import Said
from headwater.flow.models.readers.kinds import describe_reading, reader_of

HEAD_BYTES: Final = 1024  # a PDF may begin with a little of something else
KEPT_EVERY: Final = 1_000  # segments: for who looks at the clock
SCAN_SECONDS: Final = 10.0  # that a scanned page may take to be read


def probe(source: Source, models: Models) -> StepResult:
    reader = reader_of(source.content_type)
    if reader is None:
        return probed(pages=_checked_pages(source), codec=EXTRACT.codec)
    source.require_bytes()
    with source.open() as file:
        pages = reader.count_pages(file)
        file.seek(0)
        codec = describe_reading(reader, file)
    if pages is not None:
        _require_pages(pages, source)
    return probed(pages=pages, codec=codec)


def read(source: Source, models: Models) -> StepResult | None:
    """What a reader makes of it; of a PDF nothing, which has a model of its own."""
    reader, card = reader_of(source.content_type), models.card("readers")
    if reader is None:
        return None
    started, parts, letters = time.perf_counter(), list[Segment](), 0

    def so_far() -> StepResult:
        text = "\n".join(part.text for part in parts)
        said = Said(text, tell_language(text), 1.0 if text else None, tuple(parts))
        return said_result(said, card, Effort(time.perf_counter() - started, calls=0))

    with source.open() as file:
        for part in reader.segments(file):
            letters += len(part.text) + 1
            if letters > LETTERS_MAX or len(parts) >= SEGMENTS_MAX:
                raise DataFault("TOO_LARGE", f"It holds more than {LETTERS_MAX:,} letters. Split it.")
            parts.append(part)
            if len(parts) % KEPT_EVERY == 0:
                source.keep(so_far, cheap=True)
    return so_far()


def extract(source: Source, models: Models) -> StepResult | None:
    if reader_of(source.content_type) is not None:
        return None
    model = models.loaded("models.extract")
    pages = _checked_pages(source)
    if model.reads_pages:
        source.require_few_calls(model.card, min(pages, SCANS_MAX), lambda most: count_scans(source.content, most))
    source.allow(SCAN_SECONDS * (1 if model.reads_pages else min(pages, SCANS_MAX)) + model.card.deadline_seconds)
    started = page_begun = time.perf_counter()
    scans = 0

    def result(said: Said) -> StepResult:
        images = scans if model.reads_pages else pages
        return said_result(said, model.card, Effort(time.perf_counter() - started, images=images, calls=images))

    def keep(so_far: Callable[[], Said], scanned: bool) -> None:
        nonlocal scans, page_begun
        if scanned:
            scans += 1
            source.allow(SCAN_SECONDS)  # for the next one
            source.call_times.note(model.card, time.perf_counter() - page_begun)
        page_begun = time.perf_counter()
        source.keep(lambda: result(so_far()), cheap=not scanned)

    return result(model.read(source.content, keep))


def _checked_pages(source: Source) -> int:
    source.require_bytes()
    if b"%PDF-" not in source.head(HEAD_BYTES):
        raise DataFault("UNREADABLE", f"The first bytes, {spelled(source.head(8))}, are not those of a PDF.")
    with closing(open_document(source.content)) as document:
        pages = len(document)
    _require_pages(pages, source)
    return pages


def _require_pages(pages: int, source: Source) -> None:
    if pages > source.limits.pages:
        raise DataFault("TOO_LARGE", f"It has {pages} pages; limits.pages is {source.limits.pages}.")
    if pages == 0:
        raise DataFault("UNREADABLE", "It has no pages.")
