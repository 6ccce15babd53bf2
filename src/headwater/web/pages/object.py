"""Object: the medium, what every model made of it side by side, and the way from event to vectors. And its thread."""

from difflib import SequenceMatcher
from typing import Any

from headwater.web.asked import Asked
from headwater.web.media import PLAYED
from headwater.web.page import Page


def ask(asked: Asked) -> dict[str, Any]:
    found: dict[str, Any] = asked.of_any_customer(lambda customer: asked.lake.view(asked.path["id"], customer=customer))
    event = found["event"] or {}
    kind = found["object"].get("content_type") or ""
    boxes = [
        segment for text in found["texts"] if text["active"] for segment in text["segments"] or () if segment["box"]
    ]
    return {
        **found,
        "modality": event.get("modality"),
        "customer": event.get("customer"),
        "playable": kind in PLAYED and bool(found["object"]["exists"]),
        "boxes": [segment for segment in boxes if segment["frame_ms"] is None and segment["page"] is None],
        "differences": _differences(found["texts"]),
        "at": asked.text("t"),
        "page": asked.number("page", 1, 100_000),
    }


def _differences(texts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each table with several models: what the second says otherwise than the first, word by word."""
    found = []
    for other in texts:
        first = next(text for text in texts if text["table"] == other["table"])
        if other is first or not (first["text"] and other["text"]):
            continue
        one, two = first["text"].split(), other["text"].split()
        if len(one) * len(two) > 4_000_000:  # of two long texts the comparison would take seconds
            continue
        steps = SequenceMatcher(None, one, two, autojunk=False).get_opcodes()
        words = [(kind, " ".join(one[a:b]), " ".join(two[c:d])) for kind, a, b, c, d in steps]
        found.append({"table": other["table"], "one": first["model"], "other": other["model"], "words": words})
    return found


def ask_thread(asked: Asked) -> dict[str, Any]:
    found: dict[str, Any] = asked.of_any_customer(
        lambda customer: asked.lake.thread(asked.path["id"], customer=customer)
    )
    return found


PAGE = Page("object", "/object/{id:path}", "Object", ask, in_navigation=False)
THREAD = Page("thread", "/thread/{id:path}", "Thread", ask_thread, in_navigation=False)
