"""What a migration notes in the ledger that the lake leaves: how far it came, and what its switch changes in place.

Reads   the fact `migration`; the positions of tables that stay
Writes  the fact `migration`; to take a switch back, what that changed
Invariant: what a switch changes of the lake as it is (that it has moved, positions in a log that is left behind) is
noted before it is changed, so a switch that was killed, or failed, is taken back.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from headwater.domain.progress import CONSUMED, Progress
from headwater.domain.tables import EVENTS, TABLES
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.tables import catalog as catalogs
from headwater.upkeep.format import MOVED_TO, check_format
from headwater.upkeep.migration.places import place
from headwater.upkeep.parts import Parts

if TYPE_CHECKING:
    from pyiceberg.table import Table

NOTE: Final = "migration"
LOG_IDENTITY: Final = "log.identity"
_TO: Final = "to"
_SWITCH: Final = "switch"
Change = tuple[str, str]  # before, after


@dataclass(frozen=True, slots=True)
class InPlace:
    """What a switch changes where it stays: how far each table has read the log, and which log that is."""

    positions: Mapping[str, Change] = field(default_factory=dict)
    identity: Change | None = None

    @classmethod
    def from_note(cls, note: Mapping[str, Any]) -> Self:
        found: dict[str, Any] = note.get(_SWITCH) or {}
        identity = found.get("identity")
        positions = {name: (before, after) for name, (before, after) in found.get("positions", {}).items()}
        return cls(positions, (identity[0], identity[1]) if identity else None)

    def do(self, source: Parts) -> None:
        for name, (before, after) in self.positions.items():
            catalogs.set_properties_if(source.catalog, name, {CONSUMED: before}, {CONSUMED: after})
        if self.identity:
            source.ledger.set_fact(LOG_IDENTITY, self.identity[1])

    def undo(self, source: Parts) -> None:
        """Only what still is as it was left: a run that went on from there knows better."""
        for name, (before, after) in self.positions.items():
            if source.catalog.load_table(name).properties.get(CONSUMED) == after != before:
                catalogs.set_properties_if(source.catalog, name, {CONSUMED: after}, {CONSUMED: before})
        if self.identity and source.ledger.fact(LOG_IDENTITY) == self.identity[1]:
            source.ledger.set_fact(LOG_IDENTITY, self.identity[0])


def read_note(ledger: Ledger, places: Mapping[str, str]) -> dict[str, Any]:
    """What is done, for this target; another target starts anew."""
    note = _read(ledger)
    return note if note.get(_TO) == places else {_TO: places}


def write_note(ledger: Ledger, note: Mapping[str, Any]) -> None:
    ledger.set_fact(NOTE, json.dumps(note))


def note_switch(ledger: Ledger, note: Mapping[str, Any], changes: InPlace) -> None:
    write_note(ledger, {**note, _SWITCH: {"positions": changes.positions, "identity": changes.identity}})


def forget(ledger: Ledger) -> None:
    """The migration is over."""
    write_note(ledger, {})


def was_cut_short(ledger: Ledger) -> bool:
    """A note without the word comes from a Headwater that did not write one."""
    note = _read(ledger)
    return _SWITCH in note or (bool(note) and bool(ledger.fact(MOVED_TO)))


def check_here(source: Parts) -> None:
    """As whoever opens the lake is checked; but one whose switch was cut short has not left."""
    if not was_cut_short(source.ledger):
        check_format(source.ledger)


def take_back(source: Parts) -> None:
    """Undo what a switch that was cut short has changed; the lake is then where it was, and open. Twice is once."""
    if not was_cut_short(source.ledger):
        return
    note = _read(source.ledger)
    if _has_arrived(source, note):
        forget(source.ledger)
        return
    InPlace.from_note(note).undo(source)
    source.ledger.set_fact(MOVED_TO, "")
    write_note(source.ledger, {name: value for name, value in note.items() if name != _SWITCH})


def read_offsets(source: Parts) -> dict[int, int]:
    """How far the lake's log was read, also where a switch that was cut short has set that to another log's."""
    consumed = source.catalog.load_table(EVENTS.name).properties.get(CONSUMED, "{}")
    note = _read(source.ledger)
    before, after = InPlace.from_note(note).positions.get(EVENTS.name, ("", ""))
    if consumed == after and not _has_arrived(source, note):
        consumed = before
    return Progress.from_properties({CONSUMED: consumed}).offsets


def positions_at(source: Parts, begins: Mapping[int, int]) -> dict[str, Change]:
    """For each table that reads the log."""
    found = {each.name: position_at(source.catalog.load_table(each.name), begins) for each in TABLES}
    return {name: change for name, change in found.items() if change}


def position_at(table: "Table", begins: Mapping[int, int]) -> Change | None:
    """What a table says of the log now, and what it says at a new log's beginning; None where it does not read one."""
    consumed = Progress.from_properties(table.properties).consumed
    if "log" not in consumed:
        return None
    offsets = {str(partition): offset for partition, offset in begins.items()}
    return table.properties[CONSUMED], json.dumps({**consumed, "log": offsets}, sort_keys=True)


def _read(ledger: Ledger) -> dict[str, Any]:
    note: dict[str, Any] = json.loads(ledger.fact(NOTE) or "{}")
    return note


def _has_arrived(source: Parts, note: Mapping[str, Any]) -> bool:
    """Killed after the settings were written: the ledger stayed, and the lake is where the note wanted it."""
    places: Mapping[str, str] = note.get(_TO, {})
    return bool(places) and all(place(source.settings, name) == there for name, there in places.items())
