"""Audit: who may look in, and every call that was refused or changed something."""

from typing import Any

from headwater.domain.access import ADMIN
from headwater.web.asked import Asked
from headwater.web.page import Page


def ask(asked: Asked) -> dict[str, Any]:
    return {"tokens": asked.lake.access.list(), "audit": asked.lake.access.audit(limit=asked.number("limit", 100))}


PAGE = Page("audit", "/audit", "Access", ask, role=ADMIN)
