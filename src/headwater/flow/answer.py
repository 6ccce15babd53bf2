"""Answer: what a search gives back: hits, best first, as values, as JSON, as a table and as a page's part. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Final

from headwater.clock import parse_time, to_text
from headwater.domain.shown import Media
from headwater.storage.index.vector_index import Entry

if TYPE_CHECKING:
    import pandas

WORDS: Final = "words"
MEANING: Final = "meaning"
BOTH: Final = "words and meaning"
PICTURE: Final = "picture"
_POINTER: Final = ("path", "offset", "size", "content_type", "checksum")


@dataclass(frozen=True, slots=True)
class Hit:
    """`score` is 0 to 1, and means the same for every question: 0.9 and more has every word that was asked for.

    `why` it was found: by words, meaning, words and meaning, or as a picture. `marks` are the places of the asked
    words in `snippet`, as (start, end).
    """

    entry: Entry
    score: float
    why: str
    snippet: str
    marks: tuple[tuple[int, int], ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.entry.chunk_id,
            "score": round(self.score, 4),
            "why": self.why,
            "customer": self.entry.customer,
            "modality": self.entry.modality,
            "text": self.entry.text,
            "snippet": self.snippet,
            "model": self.entry.source_model,
            "locator": _present(self.entry.locator),
            "pointer": {name: self.entry.pointer.get(name) for name in _POINTER},
            "occurred_at": to_text(self.entry.occurred_at),
            "meta": self.entry.meta,
            "thread": self.entry.thread,
            "marks": [list(mark) for mark in self.marks],
        }


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """Its hits, one after the other."""

    hits: tuple[Hit, ...]
    stale_by: int
    media: Media | None = field(default=None, repr=False, compare=False)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __bool__(self) -> bool:
        """Also where nothing was found: an answer is there. Ask for its length."""
        return True

    def to_dict(self) -> dict[str, Any]:
        return {"hits": [hit.to_dict() for hit in self.hits], "stale_by": self.stale_by}

    def to_pandas(self) -> "pandas.DataFrame":
        """A line for each hit; its pointer and locator as columns of their own."""
        import pandas

        rows = [_flat(hit.to_dict()) for hit in self.hits]
        return pandas.DataFrame(rows, columns=list(rows[0]) if rows else list(_COLUMNS))

    def _repr_html_(self) -> str:
        """For notebooks, with a thumbnail or a player where there is one. Nothing that came in is taken for a page: all
        of it is escaped."""
        lines = "".join(_html_line(number, hit, self.media) for number, hit in enumerate(self.hits, 1))
        stale = f"<p>The index is {self.stale_by:,} vectors behind.</p>" if self.stale_by else ""
        if not lines:
            return f"<p>No hits.</p>{stale}"
        head = "<tr><th></th><th>score</th><th>why</th><th>customer</th><th>found in</th><th>text</th><th></th></tr>"
        return f"<table>{head}{lines}</table>{stale}"


def from_dict(document: Mapping[str, Any]) -> SearchAnswer:
    """The answer that `to_dict` made this of; of an entry it has what a hit tells."""
    return SearchAnswer(tuple(map(_hit, document["hits"])), document["stale_by"])


def _hit(told: Mapping[str, Any]) -> Hit:
    about = {name: told[name] for name in ("customer", "modality", "text", "locator", "pointer", "meta", "thread")}
    about |= {"occurred_at": parse_time(told["occurred_at"]), "source_model": told["model"]}
    entry = Entry(told["id"], told["score"], -1, told["pointer"]["path"], model="", **about)
    marks = tuple((low, high) for low, high in told["marks"])
    return Hit(entry, told["score"], told["why"], told["snippet"], marks)


_COLUMNS: Final = (
    "id", "score", "why", "customer", "modality", "text", "snippet", "model", "occurred_at", "thread", "path",
    "start_ms", "end_ms", "page", "frame_ms", "speaker",
)  # fmt: skip


def _flat(hit: dict[str, Any]) -> dict[str, Any]:
    places = {"path": hit["pointer"]["path"], **hit["locator"]}
    return {name: places.get(name) if name not in hit else hit[name] for name in _COLUMNS}


def _html_line(number: int, hit: Hit, media: Media | None) -> str:
    cells = (str(number), f"{hit.score:.3f}", hit.why, hit.entry.customer, str(hit.entry.pointer.get("path") or ""))
    told = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    about = {"customer": hit.entry.customer, "modality": hit.entry.modality}
    drawn = media(hit.entry.object_id, about, hit.entry.locator or {}) if media else ""
    return f'<tr>{told}<td style="text-align: left">{_html_snippet(hit)}</td><td>{drawn}</td></tr>'


def _html_snippet(hit: Hit) -> str:
    parts, at = [], 0
    for low, high in hit.marks:
        parts += [escape(hit.snippet[at:low]), "<b>", escape(hit.snippet[low:high]), "</b>"]
        at = high
    return "".join(parts) + escape(hit.snippet[at:])


def _present(locator: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (locator or {}).items() if value is not None}
