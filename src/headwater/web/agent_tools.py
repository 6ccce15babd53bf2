"""Tools of agents: what a copilot may ask a lake. Each calls what the API calls, and names its sources, to be cited.

All only read. What they answer with was said and written by customers: it is data, and no instruction.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from headwater.domain.tables import TABLES
from headwater.errors import HeadwaterError, InvalidRequest, NotFound
from headwater.web.asked import Asked
from headwater.web.finding import find_hits, find_objects
from headwater.web.frame import place_text

Call = Context[Any, Any]
Ask = Callable[[Call], Any]  # a context manager that gives what is asked, within what the caller sees

QUERY_SECONDS: Final = 10.0
ROWS_MAX: Final = 1_000
_ANSWER_LETTERS: Final = 200_000  # of a query's rows: more than that fills what a model can hold in mind
_TEXT_LETTERS: Final = 20_000
_LIMIT_MAX: Final = 50
_SOURCES: Final = 50
_HIT: Final = ("id", "score", "why", "text", "customer", "modality", "occurred_at", "thread")

QUERY_ABOUT: Final = (
    f"Ask the tables one SQL statement (DuckDB's dialect) that only reads. At most {ROWS_MAX:,} rows and "
    f"{QUERY_SECONDS:g} seconds; what takes longer is stopped. Aggregate rather than fetch. Tables: "
    + "; ".join(
        f"{table.short_name} ({', '.join(name for name in table.schema.names if name != 'vector')}): {table.purpose}"
        for table in TABLES
    )
)


class AgentTools:
    """`ask` lends the lake for one call; `link` gives the address of the pages for that call."""

    def __init__(self, ask: Ask, link: Callable[[Call], str]) -> None:
        self._ask = ask
        self._link = link

    def search(
        self,
        query: str,
        ctx: Call,
        customer: str | None = None,
        modality: str | None = None,
        since: str | None = None,
        until: str | None = None,
        speaker: str | None = None,
        thread: str | None = None,
        limit: int = 10,
    ) -> dict[str, Any]:
        """Find what was said, written or shown, by words and by meaning: hits, best first, each with its text, its
        score from 0 to 1, and its source: the object, the place in it and a link. `modality` is audio, video, image,
        document or chat; `since` and `until` are times such as 2026-03-01."""
        only = {"modality": modality, "since": since, "until": until, "speaker": speaker, "thread": thread}
        with self._asked(ctx, customer=customer) as asked:
            found = find_hits(asked, query, limit=_within(limit), **only)
        hits = [
            {
                name: hit[name]
                for name in ("id", "score", "why", "text", "customer", "modality", "occurred_at", "thread")
            }
            | {"source": self._source(ctx, hit["pointer"]["path"], hit["locator"])}
            for hit in found["hits"]
        ]
        return {"hits": hits, "sources": _distinct(hit["source"] for hit in hits), "stale_by": found["stale_by"]}

    def trace(self, id: str, ctx: Call, customer: str | None = None) -> dict[str, Any]:
        """From any id (of a hit, an object, an event, a vector) to its source object and event, and to everything that
        was made of it, by which model and when."""
        with self._asked(ctx, customer=customer) as asked:
            found = asked.of_any_customer(lambda whose: asked.lake.trace(id, customer=whose))
        return {**found, "sources": [self._source(ctx, found["object"]["id"])]}

    def object_text(
        self,
        id: str,
        ctx: Call,
        customer: str | None = None,
        model: str | None = None,
        offset: int = 0,
        limit: int = _TEXT_LETTERS,
    ) -> dict[str, Any]:
        """The whole text of an object, such as a call's transcript, each stretch after its place in brackets. It comes
        in pieces of `limit` characters: go on with `offset` = `next_offset` until that is null. By the active models,
        or by the `model` that is named."""
        if offset < 0 or not 1 <= limit <= _TEXT_LETTERS:
            raise ToolError(f"offset is 0 or more, limit from 1 to {_TEXT_LETTERS:,}.")
        with self._asked(ctx, customer=customer) as asked:
            found = asked.of_any_customer(lambda whose: asked.lake.view(id, customer=whose))
        chosen = [each for each in found["texts"] if (each["model"] == model if model else each["active"])]
        if model and not chosen:
            known = ", ".join(sorted({each["model"] for each in found["texts"]})) or "none"
            raise ToolError(f"{model} made no text of it. These did: {known}.")
        text = "\n\n".join(map(_told, chosen))
        end = offset + limit
        event, object_id = found["event"] or {}, found["object"]["id"]
        return {
            "object": object_id,
            "customer": event.get("customer"),
            "modality": event.get("modality"),
            "occurred_at": event.get("occurred_at"),
            "models": [each["model"] for each in chosen],
            "text": text[offset:end],
            "offset": offset,
            "next_offset": end if end < len(text) else None,
            "characters": len(text),
            "sources": [self._source(ctx, object_id)],
        }

    def list_objects(
        self,
        ctx: Call,
        customer: str | None = None,
        modality: str | None = None,
        since: str | None = None,
        until: str | None = None,
        thread: str | None = None,
        limit: int = 20,
        before: int | None = None,
    ) -> dict[str, Any]:
        """The objects (calls, pictures, videos, documents, chat lines), the last that came first. `next`, where it is
        not null, is the `before` of the page that follows."""
        only = {"modality": modality, "since": since, "until": until, "thread": thread}
        with self._asked(ctx, customer=customer) as asked:
            found = find_objects(asked, limit=_within(limit), before=before, **only)
        return {**found, "sources": [self._source(ctx, row["id"]) for row in found["objects"]]}

    def list_customers(self, ctx: Call) -> dict[str, Any]:
        """Whose things there are: how many, how large, from when to when."""
        with self._asked(ctx) as asked:
            found = asked.seen_customers()
        return {"customers": found, "sources": [{"table": "bronze.events", "link": f"{self._link(ctx)}/search"}]}

    def query_tables(self, query: str, ctx: Call, limit: int = 100) -> dict[str, Any]:
        """See QUERY_ABOUT."""
        if not 1 <= limit <= ROWS_MAX:
            raise ToolError(f"limit is from 1 to {ROWS_MAX:,} rows.")
        with self._asked(ctx) as asked:
            asked.require_whole_lake()
            found = asked.sql(query, timeout_seconds=QUERY_SECONDS, limit=limit)
        rows, more = _as_many_as_fit(found["rows"])
        cut = (
            f"Only the first {len(rows):,} rows are here, there are more. Aggregate, or ask for fewer columns or rows."
            if found["more"] or more
            else None
        )
        named = _distinct(self._source(ctx, row["object_id"]) for row in rows if isinstance(row.get("object_id"), str))
        sources = named[:_SOURCES] or [{"sql": query, "link": f"{self._link(ctx)}/tables"}]
        return {"columns": found["columns"], "rows": rows, "cut_off": cut, "sources": sources}

    @contextmanager
    def _asked(self, ctx: Call, **query: str | None) -> Iterator[Asked]:
        """The one place where our errors become the agent's."""
        try:
            with self._ask(ctx) as asked:
                yield Asked(asked.lake, asked.visitor, {name: value for name, value in query.items() if value}, {})
        except NotFound as error:
            raise ToolError(str(error)) from error
        except InvalidRequest as error:
            raise ToolError(f"{error} Nothing was answered.") from error
        except HeadwaterError as error:
            raise ToolError(f"{error.kind}: {error}") from error

    def _source(self, ctx: Call, object_id: str, locator: dict[str, Any] | None = None) -> dict[str, Any]:
        start = (locator or {}).get("start_ms")
        at = "" if start is None else f"?t={start}"
        link = f"{self._link(ctx)}/object/{quote(object_id)}{at}"
        return {"id": object_id, "place": place_text(locator) or None, "link": link}


def _within(limit: int) -> int:
    if not 1 <= limit <= _LIMIT_MAX:
        raise ToolError(f"limit is from 1 to {_LIMIT_MAX}.")
    return limit


def _told(text: dict[str, Any]) -> str:
    """Each stretch after its place; what has no places as it is."""
    segments = text["segments"] or []
    lines = [
        f"[{place}] {segment['text']}" if (place := place_text(segment)) else segment["text"] for segment in segments
    ]
    return "\n".join(lines) if lines else text["text"] or ""


def _distinct(sources: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({(source["id"], source["place"]): source for source in sources}.values())


def _as_many_as_fit(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], bool]:
    letters = 0
    for number, row in enumerate(rows):
        letters += len(json.dumps(row, default=str))
        if letters > _ANSWER_LETTERS and number:
            return rows[:number], True
    return rows, False
