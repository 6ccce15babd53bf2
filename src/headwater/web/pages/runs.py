"""Runs: the journal, with seconds, rows, money and errors; and what was started from a page."""

from typing import Any

from headwater.web.asked import Asked
from headwater.web.page import Page


def ask(asked: Asked) -> dict[str, Any]:
    return {"runs": asked.lake.journal(limit=asked.number("limit", 50))}


PAGE = Page("runs", "/runs", "Runs", ask, whole_lake=True)
