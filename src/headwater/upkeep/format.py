"""The lake's format version: set at the beginning, checked at every opening, raised by a plan.

A lake older than this Headwater is upgraded step by step, each step noted when it is done, so that a killed upgrade
goes on where it was. A lake that is newer is refused: an old program must not write what it does not understand.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.domain.tables import EFFORT, EMBEDDINGS, SAID
from headwater.errors import Conflict, NotFound
from headwater.storage.ledger import Ledger
from headwater.storage.vector_index import VectorIndex

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

FORMAT: Final = 2
_FACT: Final = "format"
# Set in the ledger that a migration left behind.
MOVED_TO: Final = "moved_to"


@dataclass(frozen=True, slots=True)
class Upgrade:
    """From one version to the next. `apply` may run twice: a crash can come between it and the note that it is done."""

    purpose: str
    apply: Callable[["Catalog", VectorIndex], None]


def _note_effort(catalog: "Catalog", index: VectorIndex) -> None:
    from headwater.storage.catalog import add_columns

    for table in (*SAID, EMBEDDINGS):
        add_columns(catalog, table.name, EFFORT)
    # Its entries do not tell whose text they hold; as a view it is made again by the next run.
    index.delete(None)


# From a version → how to leave it. Version 1 is the first.
UPGRADES: Final[Mapping[int, Upgrade]] = {
    1: Upgrade("rows tell what they cost; the index, whose texts it holds", _note_effort),
}


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    found: int
    wanted: int
    steps: tuple[tuple[int, Upgrade], ...]


def set_format(ledger: Ledger) -> None:
    """For a new lake; an existing one keeps its version."""
    if ledger.fact(_FACT) is None:
        ledger.set_fact(_FACT, str(FORMAT))


def check_format(ledger: Ledger, wanted: int = FORMAT) -> None:
    """Raises Conflict unless the lake is here and of the version that this program writes."""
    if moved := ledger.fact(MOVED_TO):
        raise Conflict(f"This lake has moved to {moved}. Open it there; what is here is what it was then.")
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


def apply_upgrade(
    plan: UpgradePlan, catalog: "Catalog", index: VectorIndex, ledger: Ledger, report: Callable[[str], None]
) -> None:
    for version, upgrade in plan.steps:
        upgrade.apply(catalog, index)
        ledger.set_fact(_FACT, str(version + 1))
        report(f"format {version} → {version + 1}: {upgrade.purpose}")


def _found(ledger: Ledger) -> int:
    found = ledger.fact(_FACT)
    if found is None:
        raise NotFound("The ledger knows no lake here. Make one with: headwater init")
    return int(found)
