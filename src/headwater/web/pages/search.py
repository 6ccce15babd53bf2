"""Search: one box, hits as cards, each with its medium at the place that was found."""

from typing import Any, Final

from headwater.domain.modality import Modality
from headwater.errors import InvalidRequest
from headwater.web.asked import Asked
from headwater.web.finding import find_hits, find_objects
from headwater.web.page import Page

MODALITIES: Final = [modality.value for modality in Modality]
_FILTERS: Final = ("modality", "speaker", "since", "until", "thread")
_LATEST: Final = 12


def ask(asked: Asked) -> dict[str, Any]:
    question = asked.text("q")
    only = {name: asked.text(name) for name in _FILTERS}
    where = asked.text("where")
    customers = [row["customer"] for row in asked.seen_customers()]
    document = {"q": question or "", "hits": [], "stale_by": 0, "refused": None, "latest": []}
    document |= {"modalities": MODALITIES, "known_customers": customers}
    try:
        if question:
            facts = tuple(where.split()) if where else None
            found = find_hits(asked, question, limit=asked.number("limit", 10), where=facts, **only)
            return document | found
        chosen: dict[str, Any] = {name: only[name] for name in ("modality", "thread", "since", "until")}
        return document | {"latest": find_objects(asked, limit=_LATEST, **chosen)["objects"]}
    except InvalidRequest as error:
        return document | {"refused": str(error)}


PAGE = Page("search", "/search", "Search", ask)
