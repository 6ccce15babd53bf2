"""Documents: a PDF, its facts and the text of its pages."""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

from headwater.errors import DataFault, spelled
from headwater.flow.derive.source import Source
from headwater.flow.derive.step import Effort, StepResult, probed, said_result
from headwater.flow.models.documents import SCANS_MAX, count_scans, open_document
from headwater.flow.models.loaded import Models
from headwater.flow.models.port import Said

HEAD_BYTES: Final = 1024  # a PDF may begin with a little of something else
SCAN_SECONDS: Final = 10.0  # that a scanned page may take to be read


def probe(source: Source, models: Models) -> StepResult:
    return probed(pages=_checked_pages(source), codec="pdf")


def extract(source: Source, models: Models) -> StepResult:
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
    if pages > source.limits.pages:
        raise DataFault("TOO_LARGE", f"It has {pages} pages; limits.pages is {source.limits.pages}.")
    if pages == 0:
        raise DataFault("UNREADABLE", "It has no pages.")
    return pages
