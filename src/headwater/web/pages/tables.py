"""Tables: rows, files and snapshots of each, its columns and newest rows; and a box for SQL that only reads."""

from typing import Any, Final

from headwater.errors import HeadwaterError
from headwater.web.asked import Asked
from headwater.web.page import Page

_ROWS: Final = 20
_SECONDS: Final = 10.0
_ROWS_DRAWN: Final = 500
_BARS: Final = 40


def ask(asked: Asked) -> dict[str, Any]:
    lake = asked.lake
    name, query = asked.text("table"), asked.text("sql")
    document: dict[str, Any] = {"tables": lake.status()["tables"], "table": None, "sql": query or ""}
    document |= {"answer": None, "refused": None, "bars": [], "more": False, "about": None}
    try:
        if query:
            answer = asked.sql(query, timeout_seconds=_SECONDS)
            document |= {"answer": {**answer, "rows": answer["rows"][:_ROWS_DRAWN]}, "bars": bars_of(answer)}
            document["more"] = len(answer["rows"]) > _ROWS_DRAWN
        elif name:
            about = lake.table(name).about()
            document |= {"table": about["table"], "about": about, "answer": lake.show(name, limit=_ROWS)}
            document["histogram"] = _histogram(about)
    except HeadwaterError as error:
        document["refused"] = str(error)
    return document


def _histogram(about: dict[str, Any]) -> list[dict[str, Any]]:
    """Files by size, as shares of the most."""
    most = max((size["files"] for size in about["sizes"]), default=1)
    return [{**size, "share": round(size["files"] / most, 4)} for size in about["sizes"]]


def bars_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Where each row is a name and a number: its bars, as shares of the longest."""
    columns, rows = answer["columns"], answer["rows"]
    if len(columns) != 2 or not 1 < len(rows) <= _BARS:
        return []
    values = [row[columns[1]] for row in rows]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 for value in values):
        return []
    longest = max(values) or 1
    return [
        {"name": str(row[columns[0]]), "value": value, "width": round(100 * value / longest, 1)}
        for row, value in zip(rows, values, strict=True)
    ]


PAGE = Page("tables", "/tables", "Tables", ask, whole_lake=True)
