"""Text of documents by PDFium, page by page. A page that is only a picture is read by the model for pictures."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from headwater.domain.locator import Segment
from headwater.errors import DataFault
from headwater.flow.models.language import tell_language
from headwater.flow.models.port import (
    Model,
    ModelCard,
    Picture,
    Said,
    installed_version,
)

SCAN_PIXELS: Final = 2_000_000
SCANS_MAX: Final = 60  # a page takes about as long as a screenshot; beyond this, what was read so far is the text
PASSWORD_ERROR: Final = 4  # FPDF_ERR_PASSWORD

# Told after each page: a function that gives what was read until then, and whether this one was a scan.
KeepPages = Callable[[Callable[[], Said], bool], None]


class Pdfium:
    """The `Model` for `extract`. Give it a loaded `reader` of pictures and it reads scanned pages too."""

    def __init__(self, reader: Model | None = None) -> None:
        self.reader = reader

    @cached_property
    def card(self) -> ModelCard:
        return ModelCard(
            "pdfium",
            installed_version("pypdfium2"),
            accepts="document",
            produces="text",
            parameters={
                "scans": self.reader.card.fingerprint if self.reader else None,
                "scans_max": SCANS_MAX,
            },
            **self._reader_terms(),
        )

    def _reader_terms(self) -> dict[str, Any]:
        """A document costs what the reader of its scans costs, and waits as long as that one does."""
        if self.reader is None:
            return {}
        card = self.reader.card
        paid = {"price": card.price, "price_unit": card.price_unit} if card.price else {}
        return {"deadline_seconds": card.deadline_seconds, **paid}

    def load(self) -> None:
        import pypdfium2  # noqa: F401  the first import binds the library

    def run(self, batch: Sequence[Path | bytes]) -> list[Said]:
        return [self.read(document, lambda so_far, scanned: None) for document in batch]

    def read(self, content: Path | bytes, keep: KeepPages) -> Said:
        read = _Pages()
        with closing(open_document(content)) as document:
            for number in range(len(document)):
                answer, before = _page_text(document, number), read.scans
                if not answer.text and self.reader and read.scans < SCANS_MAX and _has_picture(document, number):
                    answer = self.reader.run([render(document, number)])[0]
                    read.add_scan(answer)
                read.add(answer, number + 1)
                keep(read.answer, read.scans > before)
        return read.answer()


@dataclass(slots=True)
class _Pages:
    """What was read of a document so far."""

    segments: list[Segment] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    scans: int = 0
    tokens: int = 0
    attempts: int = 0

    def add_scan(self, answer: Said) -> None:
        self.scans += 1
        self.tokens += answer.tokens
        self.attempts += answer.attempts

    def add(self, answer: Said, page: int) -> None:
        if answer.text:
            self.segments.extend(_placed(answer, page))
            self.scores.extend([answer.confidence] if answer.confidence is not None else [])

    def answer(self) -> Said:
        text = "\n".join(segment.text for segment in self.segments)
        # The text layer is what the author wrote; only what was read from pictures is uncertain.
        confidence = sum(self.scores) / len(self.scores) if self.scores else (1.0 if text else None)
        effort = {"tokens": self.tokens, "attempts": max(1, self.attempts)}
        return Said(text, tell_language(text), confidence, tuple(self.segments), **effort)


def open_document(content: Path | bytes) -> Any:
    """Raises DataFault ENCRYPTED or UNREADABLE. Close it after use."""
    from pypdfium2 import PdfDocument, PdfiumError

    try:
        return PdfDocument(content if isinstance(content, bytes) else str(content))
    except PdfiumError as error:
        if getattr(error, "err_code", None) == PASSWORD_ERROR or "password" in str(error).lower():
            raise DataFault("ENCRYPTED", "The document asks for a password.") from error
        raise DataFault("UNREADABLE", f"PDFium cannot open it: {error}") from error


def count_scans(content: Path | bytes, most: int) -> int:
    """Pages that a reader of pictures would be given, counted no further than `most`."""
    found = 0
    with closing(open_document(content)) as document:
        for number in range(len(document)):
            found += not _page_text(document, number).text and _has_picture(document, number)
            if found >= most:
                break
    return found


def _pages(document: Any, number: int) -> Iterator[Any]:
    from pypdfium2 import PdfiumError

    try:
        page = document[number]
    except PdfiumError:
        return  # one damaged page does not cost the others
    with closing(page):
        yield page


def _page_text(document: Any, number: int) -> Said:
    for page in _pages(document, number):
        with closing(page.get_textpage()) as textpage:
            return Said(tidy(textpage.get_text_range()))
    return Said("")


def tidy(text: str) -> str:
    """Lines without PDFium's control characters and doubled blanks."""
    plain = re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]", "", text.replace("\r", "\n"))
    lines = (re.sub(r"[ \t]+", " ", line).strip() for line in plain.split("\n"))
    return "\n".join(line for line in lines if line)


def _has_picture(document: Any, number: int) -> bool:
    from pypdfium2 import raw

    for page in _pages(document, number):
        return any(True for _ in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_PATH]))
    return False


def render(document: Any, number: int) -> Picture:
    """A page as a picture of bounded size, whatever size it claims to be."""
    for page in _pages(document, number):
        width, height = page.get_size()
        scale = min(2.0, (SCAN_PIXELS / max(1.0, width * height)) ** 0.5)
        with closing(page.render(scale=scale, rev_byteorder=True, force_bitmap_format=None)) as bitmap:
            picture: Picture = bitmap.to_numpy()[:, :, :3].copy()
            return picture
    raise DataFault("UNREADABLE", f"Page {number + 1} cannot be drawn.")


def _placed(answer: Said, page: int) -> list[Segment]:
    parts = answer.segments or (Segment(answer.text),)
    return [Segment(part.text, replace(part.locator, page=page)) for part in parts]
