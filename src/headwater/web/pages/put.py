"""Put: drag files in or paste a text, and see them go through the stages."""

from typing import Any

from headwater.domain.access import WRITER
from headwater.web.asked import Asked
from headwater.web.page import Page


def ask(asked: Asked) -> dict[str, Any]:
    known = [row["customer"] for row in asked.seen_customers()]
    default = asked.lake.settings.text("put.customer")
    default = default if asked.visitor.sees(default) else ""
    stages = asked.lake.flow() if asked.visitor.sees_all else []
    return {"known_customers": known, "customer": asked.customer or default, "stages": stages}


PAGE = Page("put", "/put", "Put", ask, role=WRITER)
