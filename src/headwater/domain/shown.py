"""Shown: values as a part of a notebook's page. Pure. Nothing that came in is taken for a page: all of it is escaped,
and nothing in it runs."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Final

# Draws what is found at a place of an object: given its id, its event's fields and the place; "" where it cannot.
Media = Callable[[str, Mapping[str, Any], Mapping[str, Any]], str]

_ROWS: Final = 30
_LETTERS: Final = 400
_LEFT: Final = ' style="text-align: left; vertical-align: top"'


class ShownAsTable:
    """A plan or a quote: what its `to_dict` tells, as tables."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return document_html(self.to_dict())  # type: ignore[attr-defined]


class ShownDict(dict[str, Any]):
    """A dict like any other, that a notebook shows as tables."""

    def _repr_html_(self) -> str:
        return document_html(self)


class ShownObject(dict[str, Any]):
    """What is known of an object: a dict like any other; a notebook shows it and its way from event to vectors."""

    media: Media | None = None

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        """A copy has no lake behind it."""
        return ShownObject, (dict(self),)

    def _repr_html_(self) -> str:
        thing, event = self["object"], self["event"] or {}
        told = {
            "object": thing["id"],
            **{name: event.get(name) for name in ("customer", "modality", "occurred_at", "thread")},
            **{name: thing.get(name) for name in ("size", "content_type", "exists")},
            "event": event.get("event_id"),
            "labels": self.get("labels") or None,
        }
        drawn = self.media(thing["id"], {**event, **thing}, {}) if self.media and thing.get("exists") else ""
        parts = [drawn, document_html({name: value for name, value in told.items() if value is not None})]
        if text := event.get("text"):
            parts.append(f"<blockquote>{cell_html(text)}</blockquote>")
        made = [_only(row, "table", "step", "model", "derived_at") for row in self["derived"]]
        vectors = [_only(row, "id", "chunk", "model", "source_model", "indexed") for row in self["vectors"]]
        held = [_only(row, "step", "reason", "detail", "attempts") for row in self["quarantined"]]
        said = [_only(row, "table", "model", "active", "text") for row in self.get("texts", ())]
        for title, rows in (("said", said), ("made of it", made), ("vectors", vectors), ("quarantined", held)):
            if rows:
                parts.append(f"<p><b>{title}</b></p>{rows_html(rows)}")
        return "".join(parts)


def document_html(document: Mapping[str, Any]) -> str:
    """Its plain values as one table, and each list of rows as a table of its own."""
    lists = {name: value for name, value in document.items() if _is_rows(value)}
    plain = "".join(
        f"<tr><th{_LEFT}>{escape(str(name))}</th><td{_LEFT}>{cell_html(value)}</td></tr>"
        for name, value in document.items()
        if name not in lists
    )
    tables = "".join(f"<p><b>{escape(str(name))}</b></p>{rows_html(rows)}" for name, rows in lists.items())
    return (f"<table>{plain}</table>" if plain else "") + tables


def rows_html(rows: Sequence[Mapping[str, Any]]) -> str:
    """The first of them, under the names of all their columns."""
    shown = rows[:_ROWS]
    columns = list(dict.fromkeys(str(name) for row in shown for name in row))
    head = "".join(f"<th{_LEFT}>{escape(name)}</th>" for name in columns)
    lines = "".join(
        "<tr>" + "".join(f"<td{_LEFT}>{cell_html(row.get(name))}</td>" for name in columns) + "</tr>" for row in shown
    )
    left = f"<p>and {len(rows) - len(shown):,} more</p>" if len(rows) > len(shown) else ""
    return f"<table><tr>{head}</tr>{lines}</table>{left}"


def cell_html(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, Mapping):
        value = ", ".join(f"{name} {inner}" for name, inner in value.items() if inner is not None)
    elif isinstance(value, list | tuple):
        value = ", ".join(str(each) for each in value[:_ROWS])
    text = str(value)
    return escape(text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…")


def _is_rows(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _only(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: row.get(name) for name in names}
