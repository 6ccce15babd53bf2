"""Corrections: an event in whose place another one stands, sent later by the same customer about the same object.

Reads   bronze.events
Writes  the ledger's claims of objects
Rule    of all events about an object the last correction counts, and where there is none the first event. What was
        said before it stays in bronze.events as sent, and is not derived.
Pure where lines are judged; what derive does about what was made of the wrong event is in `flow.derive.corrected`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from pyspark.sql import functions as F

from headwater.domain.progress import Progress
from headwater.domain.tables import EVENTS
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.tables.read_table import iterate, read_table
from headwater.storage.tables.writer import TableWriter

CORRECTIONS: Final = "corrections"  # how many bronze.events has, in its progress: where there are none nothing is read
_FACT: Final = "corrections"  # of how many the claims know, and in which generation of the table
_AT_ONCE: Final = 1_000

Claimed = Literal["first", "echo", "lie"]


class BatchLine(NamedTuple):
    """A line of a batch that is new; `judged` where its object is one that is corrected in this batch."""

    position: tuple[int, int]
    customer: str
    event_id: str
    object_id: str
    corrects: str | None
    checksum: str
    judged: bool


# Of events, by customer and id, the objects that they are about; those that are not there are left out.
ObjectsOf = Callable[[Collection[tuple[str, str]]], Mapping[tuple[str, str], str]]
Position = tuple[int, int]


class Corrected:
    """Lines of a batch, in the order of the log, judged one after the other where an object of theirs is corrected."""

    def __init__(self, lines: Sequence[BatchLine], claim: Callable[[BatchLine], Claimed], read: ObjectsOf) -> None:
        self.accepted = 0  # corrections
        self.echoes: set[Position] = set()
        self.lies: set[Position] = set()
        self.not_seen: set[Position] = set()
        self.elsewhere: set[Position] = set()
        self.known_objects: set[Position] = set()  # what counts as no new object, though it is derived
        self._claim = claim
        named = {(line.customer, line.corrects) for line in lines if line.corrects is not None}
        self._about = dict(read(named)) if named else {}
        self._now: dict[str, BatchLine] = {}  # by object, the event of this batch that counts
        self._said: dict[str, str] = {}  # and what the batch knows its bytes to be
        self._fresh: set[str] = set()
        for line in lines:
            self._judge(line)

    def _judge(self, line: BatchLine) -> None:
        taken = self._is_taken(line) if line.judged else True
        if taken:
            self._about[line.customer, line.event_id] = line.object_id

    def _is_taken(self, line: BatchLine) -> bool:
        if line.corrects is None:
            return self._is_plain_taken(line)
        about = self._about.get((line.customer, line.corrects))
        if about is not None and about != line.object_id:
            self.elsewhere.add(line.position)
            return False
        if about is None:
            if line.object_id in self._said or self._claim(line) != "first":
                self.not_seen.add(line.position)
                return False
            self._fresh.add(line.object_id)
        self._put_first(line)
        self.accepted += 1
        return True

    def _is_plain_taken(self, line: BatchLine) -> bool:
        said = self._said.get(line.object_id)
        claimed: Claimed = self._claim(line) if said is None else "echo" if said == line.checksum else "lie"
        if claimed == "first":
            self._fresh.add(line.object_id)
            self._put_first(line)
        elif claimed == "echo":
            self.echoes.add(line.position)
        else:
            self.lies.add(line.position)
        return claimed != "lie"

    def _put_first(self, line: BatchLine) -> None:
        before = self._now.get(line.object_id)
        if before is not None:
            self.echoes.add(before.position)
        self._now[line.object_id], self._said[line.object_id] = line, line.checksum
        if line.object_id not in self._fresh:
            self.known_objects.add(line.position)


def settle_claims(ledger: Ledger, writer: TableWriter, bronze: Progress) -> None:
    """Have the claims of objects that were corrected know what is true of them now: who announces one again says the
    same, or not, as the correction. Done after the commit, for it must not be known of a correction that never was."""
    count = bronze.raw.get(CORRECTIONS, 0)
    known = f"{bronze.generation}:{count}"
    if not count or ledger.fact(_FACT) == known:
        return
    rows = read_table(writer.spark, EVENTS).where(F.col("corrects").isNotNull() & F.col("first_of_object"))
    columns = ("seq", "object_id", F.col("pointer.checksum").alias("checksum"))
    changed: dict[str, str] = {}
    for row in iterate(rows.select(*columns).orderBy("seq")):
        changed[row["object_id"]] = row["checksum"]
        if len(changed) >= _AT_ONCE:
            ledger.change_claims("object", list(changed.items()))
            changed = {}
    ledger.change_claims("object", list(changed.items()))
    ledger.set_fact(_FACT, known)
