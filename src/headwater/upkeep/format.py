"""The lake's format version: set at the beginning, checked at every opening, raised by a plan.

A lake older than this Headwater is upgraded step by step, each step noted when it is done, so that a killed upgrade
goes on where it was. A lake that is newer is refused: an old program must not write what it does not understand.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from headwater.clock import Clock
from headwater.domain.model_book import State
from headwater.domain.tables import EFFORT, EMBEDDINGS, QUARANTINE, SAID, TABLES
from headwater.errors import WAY_BACK, Conflict, NotFound
from headwater.settings import Settings
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.ledger.claims_upgrade import bring_over_claims
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import read_book
from headwater.upkeep.exclusion import alone
from headwater.upkeep.journal import recorded

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

FORMAT: Final = 4
_FACT: Final = "format"
# Set in the ledger that a migration left behind.
MOVED_TO: Final = "moved_to"


class Parts(Protocol):
    """The live parts of a lake that an upgrade changes, as `components` builds them."""

    @property
    def settings(self) -> Settings: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def catalog(self) -> "Catalog": ...
    @property
    def index(self) -> VectorIndex: ...


@dataclass(frozen=True, slots=True)
class Upgrade:
    """From one version to the next. `apply` may run twice: a crash can come between it and the note that it is done."""

    purpose: str
    apply: Callable[["Catalog", VectorIndex, Ledger], None]


def _note_effort(catalog: "Catalog", index: VectorIndex, ledger: Ledger) -> None:
    from headwater.storage.tables.schema_evolution import add_columns

    for table in (*SAID, EMBEDDINGS):
        add_columns(catalog, table.name, EFFORT)
    # Its entries do not tell whose text they hold; as a view it is made again by the next run.
    index.delete(None)


def _prepare_history(catalog: "Catalog", index: VectorIndex, ledger: Ledger) -> None:
    from headwater.storage.tables.schema_evolution import (
        add_columns,
        add_unpartitioned_spec,
        set_metrics,
        stamp_progress,
    )

    add_columns(catalog, QUARANTINE.name, [QUARANTINE.schema.field("event_seq")])
    set_metrics(catalog, QUARANTINE)
    # Which of their rows came by a retry was not noted: some may have.
    unfinished = {State.SOME, State.BUILDING}
    tags = [f"{m.step}/{m.fingerprint}" for m in read_book(ledger).models if m.state in unfinished]
    for table in TABLES:
        add_unpartitioned_spec(catalog, table.name)
        stamp_progress(catalog, table.name, aside=dict.fromkeys(tags, 1))


def _hash_claims(catalog: "Catalog", index: VectorIndex, ledger: Ledger) -> None:
    bring_over_claims(ledger)


# From a version → how to leave it. Version 1 is the first.
UPGRADES: Final[Mapping[int, Upgrade]] = {
    1: Upgrade("rows tell what they cost; the index, whose texts it holds", _note_effort),
    2: Upgrade("snapshots tell how far tables had come; strewn days share files", _prepare_history),
    3: Upgrade("keys that were seen are kept hashed", _hash_claims),
}


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    found: int
    wanted: int
    steps: tuple[tuple[int, Upgrade], ...]


def has_format(ledger: Ledger) -> bool:
    return ledger.fact(_FACT) is not None


def set_format(ledger: Ledger) -> None:
    """For a new lake; an existing one keeps its version."""
    if not has_format(ledger):
        ledger.set_fact(_FACT, str(FORMAT))


def check_format(ledger: Ledger, wanted: int = FORMAT) -> None:
    """Raises Conflict unless the lake is here and of the version that this program writes."""
    found = _found(ledger)
    if found > wanted:
        raise Conflict(
            f"This lake has format {found}; this Headwater knows up to {wanted}. Install a newer Headwater to open it."
        )
    if found < wanted:
        raise Conflict(f"This lake has format {found} and must be upgraded to {wanted} first: headwater upgrade")


def plan_upgrade(ledger: Ledger, upgrades: Mapping[int, Upgrade] = UPGRADES, wanted: int = FORMAT) -> UpgradePlan:
    """Pure: the steps from the lake's version to this program's."""
    found = _found(ledger)
    if found > wanted:
        check_format(ledger, wanted)
    missing = [version for version in range(found, wanted) if version not in upgrades]
    if missing:
        raise Conflict(f"No way is known from format {missing[0]}. Upgrade with the Headwater in between first.")
    return UpgradePlan(found, wanted, tuple((version, upgrades[version]) for version in range(found, wanted)))


def upgrade(parts: Parts, clock: Clock, report: Callable[[str], None]) -> UpgradePlan:
    """Plan and apply, with nobody else at work on the lake; Conflict names who is."""
    with alone(parts.ledger, "upgrade", clock) as held:
        plan = plan_upgrade(held.ledger)
        if plan.steps:
            with recorded(parts.settings, held.ledger, "upgrade", clock):
                apply_upgrade(plan, parts.catalog, parts.index, held.ledger, report)
    return plan


def apply_upgrade(
    plan: UpgradePlan, catalog: "Catalog", index: VectorIndex, ledger: Ledger, report: Callable[[str], None]
) -> None:
    for version, upgrade in plan.steps:
        upgrade.apply(catalog, index, ledger)
        ledger.set_fact(_FACT, str(version + 1))
        report(f"format {version} → {version + 1}: {upgrade.purpose}")


def _found(ledger: Ledger) -> int:
    """The version; Conflict where the lake has left."""
    if moved := ledger.fact(MOVED_TO):
        raise Conflict(f"This lake has moved to {moved}. Open it there; what is here is what it was then.")
    found = ledger.fact(_FACT)
    if found is None:
        raise NotFound(f"The ledger knows no lake here. {WAY_BACK}")
    return int(found)
