"""The map: the stages in order, as values. It is a chain: each stage reads only what an earlier one writes.

It feeds the run order, `headwater flow`, the diagram in the docs and an architecture test. Light to import: no Spark.
"""

from dataclasses import dataclass
from typing import Final

from headwater.domain import steps
from headwater.domain.steps import derived_tables
from headwater.domain.tables import EMBEDDINGS, EVENTS, QUARANTINE


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    key: str
    version: int
    purpose: str


LAND: Final = Stage("land", (), ("raw", "log"), "path", 1, "bytes kept once, then a pointer event")
BRONZE: Final = Stage("bronze", ("log",), (EVENTS.name, QUARANTINE.name), "event id", 1, "one trusted row per event")
DERIVE: Final = Stage(
    "derive",
    (EVENTS.name, "raw"),
    # Quarantine goes first: a row that could not be made is never silently missing.
    (QUARANTINE.name, *(table.name for table in derived_tables())),
    "object × step × model",
    1,
    "what models make of each object",
)
EMBED: Final = Stage(
    "embed",
    tuple(table.name for table in steps.EMBED.reads),
    (EMBEDDINGS.name,),
    "object × chunk × model",
    1,
    "a vector for every chunk of text",
)
INDEX: Final = Stage("index", (EMBEDDINGS.name,), ("index",), "chunk id", 1, "search follows the embeddings")

FLOW: Final = (LAND, BRONZE, DERIVE, EMBED, INDEX)
