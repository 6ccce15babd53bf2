"""Quarantine: what could not be processed, by reason, with the way out, and a way to let it go."""

from typing import Any, Final

from headwater.web.asked import Asked
from headwater.web.page import Page

_ROWS: Final = 200


def ask(asked: Asked) -> dict[str, Any]:
    found = asked.lake.quarantine(asked.text("reason"))
    return {
        **found,
        "rows": found["rows"][:_ROWS],
        "more": max(0, len(found["rows"]) - _ROWS),
        "reason": asked.text("reason"),
    }


PAGE = Page("quarantine", "/quarantine", "Quarantine", ask, whole_lake=True)
