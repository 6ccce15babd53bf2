"""Upgrade: a lake of an older format is brought to this Headwater's, one version after the other.

Reads   the ledger's format
Writes  whatever a version changed: tables' columns, claims, the index; the format after each
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headwater.domain.model_book import State
from headwater.domain.shown import ShownAsTable
from headwater.domain.tables import EFFORT, EMBEDDINGS, EVENTS, META, QUARANTINE, TABLES, TEXT_TABLES
from headwater.errors import Conflict
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.ledger.claims_upgrade import upgrade_claims
from headwater.storage.ledger.hold_lease import Held
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import read_book
from headwater.upkeep.claims import claim_by_customer
from headwater.upkeep.format import FACT, FORMAT, check_format, read_format
from headwater.upkeep.parts import Parts
from headwater.upkeep.task import Result, Step, Task, apply

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Upgrade:
    """From one version to the next. `apply` may run twice: a crash can come between it and the note that it is done."""

    purpose: str
    apply: Callable[["Catalog", VectorIndex, Ledger], None]


def _note_effort(catalog: "Catalog", index: VectorIndex, ledger: Ledger) -> None:
    from headwater.storage.tables.schema_evolution import add_columns

    for table in (*TEXT_TABLES, EMBEDDINGS):
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
    unfinished = {State.PARTIAL, State.BUILDING}
    tags = [f"{m.step}/{m.fingerprint}" for m in read_book(ledger).models if m.state in unfinished]
    for table in TABLES:
        add_unpartitioned_spec(catalog, table.name)
        stamp_progress(catalog, table.name, aside=dict.fromkeys(tags, 1))


def _hash_claims(catalog: "Catalog", index: VectorIndex, ledger: Ledger) -> None:
    upgrade_claims(ledger)


def _add_speakers(catalog: "Catalog", index: VectorIndex, ledger: Ledger) -> None:
    from headwater.storage.tables.schema_evolution import add_fields

    for table in TEXT_TABLES:
        add_fields(catalog, table.name, "segments", table.schema.field("segments").type)
    add_fields(catalog, EMBEDDINGS.name, "locator", EMBEDDINGS.schema.field("locator").type)
    # Its entries have no speaker to be found by; as a view it is made again by the next run.
    index.delete(None)


def _claim_by_customer(catalog: "Catalog", index: VectorIndex, ledger: Ledger) -> None:
    claim_by_customer(catalog, ledger)


def _add_meta(catalog: "Catalog", index: VectorIndex, ledger: Ledger) -> None:
    from headwater.storage.tables.schema_evolution import add_columns, set_metrics

    for table in TABLES:
        if columns := [field for field in META if field.name in table.schema.names]:
            add_columns(catalog, table.name, columns)
            set_metrics(catalog, table)
    # Its entries have no facts to be found by; as a view it is made again by the next run.
    index.delete(None)


def _add_sections(catalog: "Catalog", index: VectorIndex, ledger: Ledger) -> None:
    from headwater.storage.tables.schema_evolution import add_fields

    for table in TEXT_TABLES:
        add_fields(catalog, table.name, "segments", table.schema.field("segments").type)
    add_fields(catalog, EMBEDDINGS.name, "locator", EMBEDDINGS.schema.field("locator").type)


def _cut_words(catalog: "Catalog", index: VectorIndex, ledger: Ledger) -> None:
    # Its entries were cut into words otherwise; as a view it is made again by the next run.
    index.delete(None)


def _add_extra(catalog: "Catalog", index: VectorIndex, ledger: Ledger) -> None:
    from headwater.storage.tables.schema_evolution import add_columns, set_metrics

    add_columns(catalog, EVENTS.name, [EVENTS.schema.field("extra")])
    add_columns(catalog, QUARANTINE.name, [QUARANTINE.schema.field(name) for name in ("log_partition", "log_offset")])
    set_metrics(catalog, QUARANTINE)


def _add_corrects(catalog: "Catalog", index: VectorIndex, ledger: Ledger) -> None:
    from headwater.storage.tables.schema_evolution import add_columns, set_metrics

    add_columns(catalog, EVENTS.name, [EVENTS.schema.field("corrects")])
    set_metrics(catalog, EVENTS)


# From a version → how to leave it. Version 1 is the first.
UPGRADES: Final[Mapping[int, Upgrade]] = {
    1: Upgrade("rows tell what they cost; the index, whose texts it holds", _note_effort),
    2: Upgrade("snapshots tell how far tables had come; strewn days share files", _prepare_history),
    3: Upgrade("keys that were seen are kept hashed", _hash_claims),
    4: Upgrade("segments and the index tell who speaks", _add_speakers),
    5: Upgrade("an event's id belongs to its customer", _claim_by_customer),
    6: Upgrade("rows and the index tell what is known of an object beside its bytes", _add_meta),
    7: Upgrade("segments tell the section that they stand in", _add_sections),
    8: Upgrade("the index is found by words of every script, by codes and by names of files", _cut_words),
    9: Upgrade("events keep what their producers sent beside; quarantine tells where in the log", _add_extra),
    10: Upgrade("an event may correct another", _add_corrects),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseFormat(Step):
    """Expects the format that it leaves."""

    action: ClassVar[str] = "raise-format"
    purpose: str


@dataclass(frozen=True, slots=True)
class UpgradePlan(ShownAsTable):
    found: int
    wanted: int
    steps: tuple[RaiseFormat, ...]

    def to_dict(self) -> dict[str, Any]:
        steps = [{"from": int(step.expects), **step.to_dict()} for step in self.steps]
        return {"found": self.found, "wanted": self.wanted, "steps": steps}


def plan_upgrade(ledger: Ledger, upgrades: Mapping[int, Upgrade] = UPGRADES, wanted: int = FORMAT) -> UpgradePlan:
    """Pure: the steps from the lake's version to this program's."""
    found = read_format(ledger)
    if found > wanted:
        check_format(ledger, wanted)
    versions = range(found, wanted)
    if missing := [version for version in versions if version not in upgrades]:
        raise Conflict(f"No way is known from format {missing[0]}. Upgrade with the Headwater in between first.")
    steps = (RaiseFormat(about="format", expects=str(each), purpose=upgrades[each].purpose) for each in versions)
    return UpgradePlan(found, wanted, tuple(steps))


class UpgradeLake(Task[UpgradePlan]):
    kind = "upgrade"
    step_types = (RaiseFormat,)
    any_format = True

    def __init__(self, parts: Parts, upgrades: Mapping[int, Upgrade] = UPGRADES, wanted: int = FORMAT) -> None:
        self._parts = parts
        self._upgrades = upgrades
        self._wanted = wanted

    def plan(self) -> UpgradePlan:
        return plan_upgrade(self._parts.ledger, self._upgrades, self._wanted)

    def state(self, step: Step) -> str:
        return str(read_format(self._parts.ledger))

    def do(self, step: Step, held: Held) -> Result:
        version = int(step.expects)
        if read_format(held.ledger) == version:
            self._upgrades[version].apply(self._parts.catalog, self._parts.index, held.ledger)
            held.ledger.set_fact(FACT, str(version + 1))
        return {"format": version + 1}


def upgrade(
    parts: Parts, report: Callable[[str], None] | None = None, stepped: Callable[[RaiseFormat], None] | None = None
) -> UpgradePlan:
    """What was planned, and is done now; `stepped` is called after each step."""
    task = UpgradeLake(parts)
    plan = task.plan()

    def report_step(step: Step, _: Result) -> None:
        if stepped is not None and isinstance(step, RaiseFormat):
            stepped(step)

    apply(task, parts, plan, report=report, stepped=report_step)
    return plan
