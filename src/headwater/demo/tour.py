"""The tour: a fresh lake, real media through the whole flow, and then everything that Headwater can say about it.

It only uses what any program can use, `headwater.lake`; the command renders what is returned here.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from headwater.demo.media import DemoItem, make_demo_media
from headwater.domain.tables import CAPTIONS, TABLES, TRANSCRIPTS, Table
from headwater.domain.words import character_accuracy, plain_words, word_error_rate
from headwater.errors import Conflict
from headwater.lake import Lake, init
from headwater.stack.stack import Stack
from headwater.storage.io.java import check_java

SEED: Final = 7
MARK: Final = ".headwater-demo"  # a directory with this file in it was made by the demo and may be made again
QUERIES: Final[tuple[dict[str, str], ...]] = (
    {"query": "the screen is broken"},
    {"query": "invoice is still open"},
    {"query": "restart the router", "customer": "globex"},
    {"query": "WiFi drops each night"},  # found by its meaning: no text has a word of it
)


@dataclass(frozen=True, slots=True)
class Heard:
    """A known sentence beside what the speech model made of it. `word_error` 0 is perfect; signs and capitals are no
    errors, since not every model writes them."""

    object_id: str
    truth: str
    heard: str
    confidence: float | None
    word_error: float
    model: str


@dataclass(frozen=True, slots=True)
class Read:
    """What a screen truly shows beside what was read of it, blanks included. `character_error` 0 is perfect."""

    object_id: str
    truth: str
    read: str
    character_error: float
    model: str


@dataclass(frozen=True, slots=True)
class Tour:
    """What there is to see. `word_error` is that of all recordings together, `character_error` of all screenshots.

    Of a search, `shared` are the words of the question that its first hit has: without any, it was found by meaning.
    `trace` starts from a hit of the first search that has raw bytes behind it.
    """

    lake: str
    arrived: dict[str, dict[str, int]]
    derived: dict[str, int]
    heard: list[Heard]
    word_error: float
    read: list[Read]
    character_error: float
    searches: list[dict[str, Any]]
    trace: dict[str, Any] | None
    quarantine: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def make_lake(directory: Path, *, keep: bool, servers: Callable[[Path], None] | None = None) -> Lake:
    """A fresh lake, in place of an earlier demo's but of nothing else; with `keep`, the one that is there goes on.

    `servers` starts what the lake is to run on, in the same directory: see `start_stack`. Where Java is missing nothing
    is begun.
    """
    check_java()
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARK).is_file():
            raise Conflict(f"{directory} was not made by the demo. Name another place: headwater demo --lake DIR")
        if not keep:
            Stack(directory).down()
            shutil.rmtree(directory)
    if servers is not None:
        servers(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARK).touch()
    return init(directory)


def start_stack(directory: Path, report: Callable[[str], None]) -> None:
    """The production parts; they write the settings of a lake on them into their own directory."""
    Stack(directory).up(report=report)


def make_media(directory: Path) -> list[DemoItem]:
    return make_demo_media(directory / "media", SEED)


def send(lake: Lake, items: Sequence[DemoItem], report: Callable[[str, int], None]) -> None:
    """Everything in, each under an id of its own, so that sending it all again changes nothing."""
    for number, item in enumerate(items):
        if item.path is None:
            lake.put_text(item.truth, customer=item.customer, id=f"demo-chat-{number}")
        else:
            lake.put(item.path, customer=item.customer)
        report("put", 1)


def look_around(lake: Lake, items: Sequence[DemoItem]) -> Tour:
    answers = [_answer(lake, asked) for asked in QUERIES]
    stored = [hit for hit in answers[0]["hits"] if hit["modality"] != "chat"]
    heard, read = _heard(lake, items), _read(lake, items)
    return Tour(
        lake=str(lake.settings.lake),
        arrived=_arrived(items),
        derived={table.name: _count(lake, table.name) for table in TABLES},
        heard=heard,
        word_error=_together([(line.word_error, len(line.truth.split())) for line in heard]),
        read=read,
        character_error=_together([(screen.character_error, len(screen.truth)) for screen in read]),
        searches=answers,
        trace=lake.trace(stored[0]["id"]) if stored else None,
        quarantine=lake.quarantine(),
    )


def _answer(lake: Lake, asked: dict[str, str]) -> dict[str, Any]:
    answer = lake.search(limit=2, **asked).to_dict()
    first = answer["hits"][0]["text"] if answer["hits"] else ""
    shared = sorted(set(plain_words(asked["query"]).split()) & set(plain_words(first).split()))
    return {**asked, **answer, "shared": shared}


def _together(errors: Sequence[tuple[float, int]]) -> float:
    """The error over all, from pairs of one's error and its length."""
    return sum(error * length for error, length in errors) / max(1, sum(length for _, length in errors))


def _arrived(items: Sequence[DemoItem]) -> dict[str, dict[str, int]]:
    """By customer, how many of each kind."""
    counts: dict[str, dict[str, int]] = {}
    for item in items:
        kinds = counts.setdefault(item.customer, {})
        kinds[item.kind] = kinds.get(item.kind, 0) + 1
    return counts


def _count(lake: Lake, table: str) -> int:
    return int(lake.sql(f"SELECT count(*) AS rows FROM {table}")["rows"][0]["rows"])


def _heard(lake: Lake, items: Sequence[DemoItem]) -> list[Heard]:
    truths = {item.path.name: item.said for item in items if item.path is not None and item.said}
    found = []
    for row, truth in _rows_of(lake, TRANSCRIPTS, truths):
        error = word_error_rate(plain_words(truth), plain_words(row["text"]))
        found.append(Heard(row["object_id"], truth, row["text"], row["confidence"], error, row["model"]))
    return found


def _read(lake: Lake, items: Sequence[DemoItem]) -> list[Read]:
    """Screenshots only: of a video, frames are read, and a line that stays is read in each."""
    truths = {item.path.name: item.shown for item in items if item.path is not None and item.kind == "screenshot"}
    return [
        Read(row["object_id"], truth, row["text"], 1 - character_accuracy(truth, row["text"]), row["model"])
        for row, truth in _rows_of(lake, CAPTIONS, truths)
    ]


def _rows_of(lake: Lake, table: Table, truths: Mapping[str, str]) -> Iterator[tuple[dict[str, Any], str]]:
    """The rows of objects whose truth is known by the file's name, in their order."""
    query = f"SELECT object_id, coalesce(text, '') AS text, confidence, model FROM {table.name} ORDER BY object_id"
    for row in lake.sql(query)["rows"]:
        truth = truths.get(row["object_id"].rpartition("/")[2])
        if truth is not None:
            yield row, truth
