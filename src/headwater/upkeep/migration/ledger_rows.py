"""The rows of a ledger that go along with a lake to another one. Reads the source's ledger, writes nothing."""

from collections.abc import Iterator
from typing import Final

from headwater.clock import to_text
from headwater.storage.ledger.copy import CLAIMS, FACTS, RUNS, read_ledger, seal_claim
from headwater.storage.ledger.database import Row
from headwater.upkeep.format import MOVED_TO
from headwater.upkeep.journal import DONE
from headwater.upkeep.migration.check import CAME_AS, FORMAT, identity_of
from headwater.upkeep.migration.note import LOG_IDENTITY, NOTE
from headwater.upkeep.parts import Parts

KIND: Final = "migrate"
# What a ledger says about its own place; it does not travel.
_STAYS: Final = {NOTE, CAME_AS, FORMAT, MOVED_TO}


def travelling_rows(source: Parts, *, renumber: bool) -> Iterator[tuple[str, Row]]:
    """`renumber` where the log moves too, and gives the same positions again."""
    yield FACTS, (CAME_AS, identity_of(source))
    stays = _STAYS | ({LOG_IDENTITY} if renumber else set())
    begun = to_text(source.ledger.unfinished(KIND)[0].started_at)
    for name, row in read_ledger(source.ledger):
        if name == CLAIMS and renumber:
            yield name, seal_claim(row)
        elif name == RUNS:
            yield name, _finished(row, begun, to_text(source.clock()))
        elif name != FACTS or row[0] not in stays:
            yield name, row


def _finished(run: Row, begun: str, now: str) -> Row:
    """Whoever reads of this migration where it led to, there it is done; those that were killed before it are not."""
    kind, started_at, _, outcome, detail = run
    is_this = (kind, started_at, outcome) == (KIND, begun, None)
    return (kind, started_at, now, DONE, detail) if is_this else run
