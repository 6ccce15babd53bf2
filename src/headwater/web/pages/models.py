"""Models: which are active, beside one another or building; two of a step compared; the flip."""

from itertools import groupby
from typing import Any

from headwater.errors import HeadwaterError
from headwater.web.asked import Asked
from headwater.web.page import Page


def ask(asked: Asked) -> dict[str, Any]:
    lake = asked.lake
    models = lake.models.list()
    steps = [{"step": step, "models": list(group)} for step, group in groupby(models, lambda model: model["step"])]
    document: dict[str, Any] = {"steps": steps, "comparison": None, "refused": None}
    step, one, other = (asked.text(name) for name in ("step", "one", "other"))
    if step and one and other:
        try:
            document["comparison"] = lake.models.compare(step, one, other)
        except HeadwaterError as error:
            document["refused"] = str(error)
    return document


PAGE = Page("models", "/models", "Models", ask, whole_lake=True)
