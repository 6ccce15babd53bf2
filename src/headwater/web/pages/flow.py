"""Flow: the map with what waits before each stage, what the tables hold, and what was done last."""

from collections import Counter
from datetime import timedelta
from typing import Any, Final

from headwater.clock import parse_time, utc_now
from headwater.errors import HeadwaterError
from headwater.web.asked import Asked
from headwater.web.page import Page

SPANS: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
_RUNS: Final = 1_000


def ask(asked: Asked) -> dict[str, Any]:
    span = asked.text("span") if asked.text("span") in SPANS else "day"
    if not asked.visitor.sees_all:
        return {"customers": asked.seen_customers(), "stages": [], "span": span, "down": None, "whole": False}
    lake = asked.lake
    runs = lake.journal(limit=_RUNS)
    since = utc_now() - SPANS[span or "day"]
    recent = [run for run in runs if parse_time(run["started_at"]) >= since]
    done, faults, money = Counter[str](), 0, 0.0
    for run in recent:
        done.update(run["detail"].get("done") or {})
        faults += sum(model["faults"] or 0 for model in run["models"])
        money += sum(model["cost"] or 0.0 for model in run["models"])
    document = {"stages": lake.flow(), "runs": runs[:5], "done": dict(done), "faults": faults, "money": money}
    document |= {"span": span, "spans": list(SPANS), "failed": sum(run["outcome"] == "failed" for run in recent)}
    document |= {"customers": asked.seen_customers(), "whole": True, "down": None}
    try:
        return {**document, "status": lake.status()}
    except HeadwaterError as error:
        return {**document, "status": None, "down": str(error)}


PAGE = Page("flow", "/", "Flow", ask)
