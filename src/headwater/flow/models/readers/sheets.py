"""Excel by openpyxl: the values of cells, row by row, as the last program that calculated them left them.

A sheet is a page, and a stretch of rows a section: `Prices!2–14`. No formula is calculated.
"""

import os
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any, BinaryIO, Final

from headwater.domain.locator import Locator, Segment
from headwater.errors import DataFault
from headwater.flow.models.readers.package import Attributes, main_part, opened, read_part, require_no_doctype
from headwater.flow.models.readers.plain import grouped

USUAL: Final = "xl/workbook.xml"
ROWS_MAX: Final = 1 << 20  # of a sheet, as Excel has it; a row that claims to be further down is not looked for
_TITLE_LETTERS: Final = 31  # as Excel has it


def count_pages(file: BinaryIO) -> int | None:
    sheets = 0

    def begin(element: str, given: Attributes) -> None:
        nonlocal sheets
        sheets += element == "sheet"

    with opened(file) as package:
        for _ in read_part(package, main_part(package, USUAL), begin):
            pass
    return sheets


def segments(file: BinaryIO) -> Iterator[Segment]:
    with opened(file) as package:
        require_no_doctype(package)
    for page, sheet in enumerate(_workbook(file).worksheets, 1):
        sheet.reset_dimensions()  # what it claims to have is not what it has
        title = str(sheet.title)[:_TITLE_LETTERS]
        try:
            yield from _stretches(_rows(sheet), page, title)
        except DataFault:
            raise
        except (ValueError, KeyError, IndexError, TypeError, OSError, SyntaxError) as error:
            raise DataFault("UNREADABLE", f"Its sheet {title} cannot be read: {error}") from error


def _stretches(rows: Iterator[tuple[int, str]], page: int, title: str) -> Iterator[Segment]:
    return grouped(rows, lambda first, last: Locator(page=page, section=f"{title}!{first}–{last}"))


def _workbook(file: BinaryIO) -> Any:
    # Document types are refused above; its own guard reads a tenth as fast.
    os.environ.setdefault("OPENPYXL_DEFUSEDXML", "False")
    import warnings

    from openpyxl import load_workbook

    file.seek(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return load_workbook(file, read_only=True, data_only=True, keep_vba=False, keep_links=False)
    except MemoryError:
        raise
    except Exception as error:
        raise DataFault("UNREADABLE", f"openpyxl cannot open it: {type(error).__name__}: {error}") from error


def _rows(sheet: Any) -> Iterator[tuple[int, str]]:
    for number, row in enumerate(sheet.iter_rows(max_row=ROWS_MAX, values_only=True), 1):
        cells = [_shown(value) for value in row if value is not None]
        if cells:
            yield number, " | ".join(cells)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime):
        return value.isoformat(" ").removesuffix(" 00:00:00")
    return value.isoformat() if isinstance(value, date | time) else str(value)
