"""The map: the stages in order, as values. It is a chain: each stage reads only what an earlier one writes.

A run is driven by it: which stages there are and in which order they are drained, who does each, on which thread and in
which Spark pool, which commit wakes whom, and the names under which a run counts. `headwater flow`, what is pending and
the docs go by the same values. Light to import: no Spark.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from headwater.domain import steps
from headwater.domain.tables import EMBEDDINGS, EVENTS, QUARANTINE, Table, find

LOG: Final = "log"
DEFAULT_POOL: Final = "default"


@dataclass(frozen=True, slots=True)
class Stage:
    """`runner` is what does it in a run, as `package.module:Class`: a `StageRunner`, or an `Intake` where it reads the
    log. A stage without one is not done by runs.

    `pool` is a pool of Spark's scheduler. Stages of one pool have a thread in common and take turns there, in the order
    of the map; those of the default pool on the thread that called the run. `counts` are the names under which a run
    counts what the stage does, besides its own name.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    key: str
    version: int
    purpose: str
    runner: str = ""
    pool: str = DEFAULT_POOL
    counts: tuple[str, ...] = ()

    def is_woken_by(self, other: "Stage") -> bool:
        """Whether it reads what the other one writes."""
        return not set(self.reads).isdisjoint(other.writes)

    def to_dict(self) -> dict[str, Any]:
        """What a reader of the map is shown."""
        return {name: value for name, value in asdict(self).items() if name not in {"runner", "pool", "counts"}}


LAND: Final = Stage("land", (), ("raw", LOG), "path", 1, "bytes kept once, then a pointer event")
BRONZE: Final = Stage(
    "bronze",
    (LOG,),
    (EVENTS.name, QUARANTINE.name),
    "customer × event id",
    1,
    "one trusted row per event",
    runner="headwater.flow.drive.open_intake:open_intake",
    pool="intake",
    counts=("lost", "quarantine"),
)
DERIVE: Final = Stage(
    "derive",
    (EVENTS.name, "raw"),
    # Quarantine goes first: a row that could not be made is never silently missing.
    (QUARANTINE.name, *(table.name for table in steps.derived_tables())),
    "object × step × model",
    1,
    "what models make of each object",
    runner="headwater.flow.drive.derive_runner:DeriveRunner",
    counts=("corrected", "straggler", "retry", "tried", "recovered", "replay", "quarantine"),
)
EMBED: Final = Stage(
    "embed",
    tuple(table.name for table in steps.EMBED.reads),
    (EMBEDDINGS.name,),
    "object × chunk × model",
    1,
    "a vector for every chunk of text",
    runner="headwater.flow.drive.embed_runner:EmbedRunner",
    pool="search",
    counts=("replay", "quarantine"),
)
INDEX: Final = Stage(
    "index",
    (EMBEDDINGS.name,),
    ("index",),
    "chunk id",
    1,
    "search follows the embeddings",
    runner="headwater.flow.drive.index_runner:IndexRunner",
    pool="search",
)

Flow = tuple[Stage, ...]
FLOW: Final[Flow] = (LAND, BRONZE, DERIVE, EMBED, INDEX)


def tables_of(places: Sequence[str]) -> tuple[Table, ...]:
    """Those of what a stage reads or writes that are tables."""
    return tuple(table for name in places if (table := find(name)))


def stages_by_pool(flow: Sequence[Stage]) -> dict[str, Flow]:
    """The stages that a run does: pools in the order of their first stages, stages in the order of the map."""
    found: dict[str, Flow] = {}
    for stage in flow:
        if stage.runner:
            found[stage.pool] = (*found.get(stage.pool, ()), stage)
    return found


def names_counted(flow: Sequence[Stage]) -> frozenset[str]:
    """Every name under which a run of these stages may count."""
    return frozenset(name for stage in flow if stage.runner for name in (stage.name, *stage.counts))
