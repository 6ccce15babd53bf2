"""Documents: a PDF, its facts and the text of its pages."""

import time
from contextlib import closing
from typing import Final

from headwater.domain.tables import CAPTIONS, METADATA
from headwater.errors import DataFault
from headwater.flow.derive.source import Source
from headwater.flow.derive.step import Effort, Step, StepResult, probed, said_result
from headwater.flow.models.documents import SCANS_MAX, open_document
from headwater.flow.models.loaded import Models

HEAD_BYTES: Final = 1024  # a PDF may begin with a little of something else
SCAN_SECONDS: Final = 5.0  # that a scanned page may take to be read


def probe(source: Source, models: Models) -> StepResult:
    return probed(pages=_checked_pages(source), codec="pdf")


def extract(source: Source, models: Models) -> StepResult:
    model = models.loaded("models.extract")
    pages = _checked_pages(source)
    source.allow(SCAN_SECONDS * min(pages, SCANS_MAX) + model.card.deadline_seconds)
    started = time.perf_counter()
    said = model.run([source.content])[0]
    return said_result(said, model.card, Effort(time.perf_counter() - started, images=pages))


def _checked_pages(source: Source) -> int:
    source.require_bytes()
    if b"%PDF-" not in source.head(HEAD_BYTES):
        raise DataFault("UNREADABLE", f"The first bytes, {source.head(8)!r}, are not those of a PDF.")
    with closing(open_document(source.content)) as document:
        pages = len(document)
    if pages > source.limits.pages:
        raise DataFault("TOO_LARGE", f"It has {pages} pages; limits.pages is {source.limits.pages}.")
    if pages == 0:
        raise DataFault("UNREADABLE", "It has no pages.")
    return pages


STEPS: Final = (
    Step("probe", METADATA, probe),
    Step("extract", CAPTIONS, extract, "models.extract"),
)
