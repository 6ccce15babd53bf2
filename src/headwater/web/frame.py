"""Frame: what is around every page: the head, the navigation, the words that templates share."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request

from headwater.clock import parse_time, utc_now
from headwater.domain.access import Visitor
from headwater.domain.keys import shown_path
from headwater.domain.quantities import size
from headwater.web.media import PLAYED
from headwater.web.page import Page


class Frame:
    def __init__(self, templates: Path, pages: Sequence[Page]) -> None:
        self._pages = pages
        self._environment = Environment(
            loader=FileSystemLoader(templates),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals["played"] = PLAYED
        self._environment.filters |= {
            "bytes": size,
            "count": lambda value: f"{value:,}",
            "place": place_text,
            "shown": shown_path,
            "address": lambda name: quote(str(name), safe="/"),
            "ago": ago_text,
            "marked": marked,
            "seconds": seconds_text,
        }

    def draw(self, name: str, title: str, visitor: Visitor | None, request: Request, document: dict[str, Any]) -> str:
        """Everything that came from outside is escaped; nothing of it is taken for a page's part."""
        shown = [page for page in self._pages if page.in_navigation and visitor and page.is_for(visitor)]
        about = {"title": title, "name": name, "pages": shown, "visitor": visitor, "query": dict(request.query_params)}
        about["path"] = request.url.path
        return self._environment.get_template(f"{name}.html").render(**about, **document)


def place_text(locator: dict[str, Any] | None) -> str:
    """Where in its object: a time, a page, a speaker, a section."""
    found = {name: value for name, value in (locator or {}).items() if value is not None}
    parts = []
    if "start_ms" in found:
        parts.append(clock_text(found["start_ms"]) + (f"–{clock_text(found['end_ms'])}" if "end_ms" in found else ""))
    if "frame_ms" in found:
        parts.append(f"picture at {clock_text(found['frame_ms'])}")
    if "page" in found:
        parts.append(f"page {found['page']}")
    parts += [str(found[name]) for name in ("section", "speaker") if name in found]
    return ", ".join(parts)


def clock_text(milliseconds: int) -> str:
    seconds, tenths = divmod(int(milliseconds) // 100, 10)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}.{tenths}"


def seconds_text(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def ago_text(at: str | datetime | None) -> str:
    """`3 min ago`, with the exact time for who points at it."""
    if at is None:
        return Markup("–")
    moment = at if isinstance(at, datetime) else parse_time(at)
    since = utc_now() - moment
    for unit, length in (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("min", timedelta(minutes=1))):
        if since >= length:
            said = f"{since // length} {unit} ago"
            break
    else:
        said = "just now"
    exact = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment.isoformat(), exact, said)


def marked(text: str, marks: Sequence[Sequence[int]]) -> str:
    """With the asked words marked."""
    parts, at = [], 0
    for low, high in marks:
        parts += [escape(text[at:low]), Markup("<mark>{}</mark>").format(text[low:high])]
        at = high
    return Markup("").join([*parts, escape(text[at:])])
