"""Finding: hits and objects for a caller who may see only some customers: of each the best, best first."""

from typing import Any

from headwater.web.asked import Asked


def find_hits(asked: Asked, q: str, *, limit: int, **only: Any) -> dict[str, Any]:
    """Of several customers the best of each, best first."""
    answers = [asked.lake.search(q, customer=each, limit=limit, **only) for each in asked.customers]
    hits = sorted((hit for answer in answers for hit in answer), key=lambda hit: -hit.score)[:limit]
    stale = max((answer.stale_by for answer in answers), default=0)
    return {"hits": [hit.to_dict() for hit in hits], "stale_by": stale}


def find_objects(asked: Asked, *, limit: int, before: int | None = None, **only: Any) -> dict[str, Any]:
    pages = [asked.lake.ls(customer=each, limit=limit, before=before, **only) for each in asked.customers]
    found = sorted((row for page in pages for row in page["objects"]), key=lambda row: -row["seq"])
    more = len(found) > limit or any(page["next"] is not None for page in pages)
    return {"objects": found[:limit], "next": found[:limit][-1]["seq"] if more and found else None}
