"""The tour: a fresh lake, real media through the whole flow, and then everything that Headwater can say about it.

It only uses what any program can use, `headwater.lake`; the command renders what is returned here.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from headwater.demo.media import DemoItem, make_demo_media
from headwater.domain.tables import TABLES, TRANSCRIPTS
from headwater.domain.words import word_error_rate
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
)


@dataclass(frozen=True, slots=True)
class Heard:
    """A known sentence beside what the speech model made of it. `word_error` 0 is perfect."""

    object_id: str
    truth: str
    heard: str
    confidence: float | None
    word_error: float
    model: str


@dataclass(frozen=True, slots=True)
class Tour:
    """What there is to see. `trace` starts from a hit of the first search that has raw bytes behind it."""

    lake: str
    arrived: dict[str, dict[str, int]]
    derived: dict[str, int]
    heard: list[Heard]
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
            for landed in lake.put(item.path, customer=item.customer):
                if landed.error is not None:
                    raise landed.error
        report("put", 1)


def look_around(lake: Lake, items: Sequence[DemoItem]) -> Tour:
    answers = [{**asked, **lake.search(limit=2, **asked).to_dict()} for asked in QUERIES]  # type: ignore[arg-type]
    stored = [hit for hit in answers[0]["hits"] if hit["modality"] != "chat"]
    return Tour(
        lake=str(lake.settings.lake),
        arrived=_arrived(items),
        derived={table.name: _count(lake, table.name) for table in TABLES},
        heard=_heard(lake, items),
        searches=answers,
        trace=lake.trace(stored[0]["id"]) if stored else None,
        quarantine=lake.quarantine(),
    )


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
    """Calls only: a video's truth holds what is written in it too."""
    truths = {item.path.name: item.truth for item in items if item.kind == "call" and item.path is not None}
    rows = lake.sql(f"SELECT object_id, text, confidence, model FROM {TRANSCRIPTS.name} ORDER BY object_id")["rows"]
    heard = []
    for row in rows:
        truth = truths.get(row["object_id"].rpartition("/")[2])
        if truth is not None:
            error = word_error_rate(_words(truth), _words(row["text"] or ""))
            heard.append(Heard(row["object_id"], truth, row["text"] or "", row["confidence"], error, row["model"]))
    return heard


def _words(text: str) -> str:
    """Signs and capitals are no errors of a model that writes neither."""
    return " ".join(re.findall(r"[\w']+", text.lower()))
