"""Verdict: which lines of a batch are new events, which came before, and which contradict what came before.

Reads   the ledger's claims; bronze.events, where a claim outlived its row
Writes  the ledger's claims
The ledger answers by key, whatever the table's size. Lines about an object that one of them corrects are few, and are
judged one after the other, in the order of the log: so a batch comes to what its lines would come to one by one.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from headwater.domain.keys import event_key
from headwater.domain.modality import INLINE
from headwater.domain.progress import Progress
from headwater.domain.tables import EVENTS
from headwater.flow.corrections import CORRECTIONS, BatchLine, Claimed, Corrected, ObjectsOf
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.tables.read_table import read_table, to_arrow
from headwater.storage.tables.writer import TableWriter

Position = tuple[int, int]  # partition and offset of a line of the log
Claim = tuple[str, str, int, int]  # key, content and position
Kind = Literal["event", "object"]
_COLUMNS: Final[Mapping[Kind, tuple[str, ...]]] = {"event": ("event_id", "customer"), "object": ("object_id",)}

_INLINE: Final = pa.array(sorted(INLINE))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of a batch; a sound line in none of these sets is a new event of a new object."""

    unsound: int
    accepted: int
    duplicates: frozenset[Position]
    conflicts: frozenset[Position]
    # Of these, the ones whose id is their own, and whose object was announced before with another checksum.
    lies: frozenset[Position]
    # New events about an object that is known already: kept as sent, derived from once.
    echoes: frozenset[Position]
    raw: Mapping[str, int]
    # Of the conflicts, corrections of an event that nobody saw, and of one about another object.
    not_seen: frozenset[Position] = frozenset()
    elsewhere: frozenset[Position] = frozenset()


def judge(writer: TableWriter, seen: pa.Table, ledger: Ledger, since: Progress) -> Verdict:
    """Who is first for each customer's id and each object; the ledger answers by key, whatever the table's size."""
    sound = seen.filter(seen["sound"])
    claims = list(_claims(sound, "event", sound["content_hash"]))
    duplicates, conflicts = _claim(writer, ledger, "event", claims, sound)
    known = duplicates | conflicts
    checksums = pc.struct_field(sound["pointer"], "checksum")
    new = [claim for claim in _claims(sound, "object", checksums) if not known or claim[2:] not in known]
    corrected = _corrected_objects(sound, known)
    plain = [claim for claim in new if claim[0] not in corrected] if corrected else new
    echoes, lies = _claim(writer, ledger, "object", plain, sound)

    def claim_object(line: BatchLine) -> Claimed:
        same, other = _claim(writer, ledger, "object", [(line.object_id, line.checksum, *line.position)], sound)
        return "echo" if same else "lie" if other else "first"

    judged = Corrected(_lines(sound, known | lies, corrected), claim_object, _objects_of(writer, sound, since))
    echoes, lies = echoes | judged.echoes, lies | judged.lies
    refused = lies | judged.not_seen | judged.elsewhere
    accepted = len(new) - len(refused)
    counted = {CORRECTIONS: judged.accepted} if judged.accepted else {}
    return Verdict(
        unsound=len(seen) - len(sound),
        accepted=accepted,
        duplicates=frozenset(duplicates),
        conflicts=frozenset(conflicts | refused),
        lies=frozenset(lies),
        echoes=frozenset(echoes),
        raw={"rows": accepted, **counted, **_raw_objects(sound, known | refused | echoes | judged.known_objects)},
        not_seen=frozenset(judged.not_seen),
        elsewhere=frozenset(judged.elsewhere),
    )


def _corrected_objects(sound: pa.Table, known: Collection[Position]) -> set[str]:
    """Those that a new event of the batch corrects something about."""
    if sound["corrects"].null_count == len(sound):
        return set()
    corrections = sound.filter(pc.and_not(sound["corrects"].is_valid(), are_among(sound, known)))
    return set(corrections["object_id"].to_pylist())


def _lines(sound: pa.Table, known: Collection[Position], corrected: Collection[str]) -> list[BatchLine]:
    """What has to be known of each line that is new, in the order of the log; nothing where none corrects."""
    if not corrected:
        return []
    checksums = pc.struct_field(sound["pointer"], "checksum")
    names = ("log_partition", "log_offset", "customer", "event_id", "object_id", "corrects")
    rows = zip(*(column.to_pylist() for column in (*(sound[name] for name in names), checksums)), strict=True)
    lines = (
        BatchLine((partition, offset), customer, event_id, object_id, corrects, checksum, object_id in corrected)
        for partition, offset, customer, event_id, object_id, corrects, checksum in rows
    )
    return sorted((line for line in lines if line.position not in known), key=lambda line: line.position)


def _objects_of(writer: TableWriter, sound: pa.Table, since: Progress) -> ObjectsOf:
    """What the events that are named are about, by customer and id, as the table has them."""

    def read(named: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
        if not since.next_seq:
            return {}
        names = pa.Table.from_pylist([{"customer": owner, "event_id": name} for owner, name in named])
        given = F.broadcast(writer.spark.createDataFrame(names))
        near = F.lit(True)
        for column in ("customer", "event_id"):  # by which files are left out
            least, most = min(names[column].to_pylist()), max(names[column].to_pylist())
            near &= F.col(column).between(least, most)
        columns = ["customer", "event_id"]
        found = read_table(writer.spark, EVENTS).where(near).join(given, columns, "left_semi")
        rows = to_arrow(found.select(*columns, "object_id")).to_pylist()
        return {(row["customer"], row["event_id"]): row["object_id"] for row in rows}

    return read


def _raw_objects(sound: pa.Table, known: Collection[Position]) -> dict[str, int]:
    """What is new in the raw store: `status` tells it without reading a row. A chat line is in the log alone."""
    first = pc.and_not(pc.invert(pc.is_in(sound["modality"], _INLINE)), are_among(sound, known))
    sizes = pc.struct_field(sound["pointer"], "size").filter(first)
    # Not summed in Arrow: an event may claim any size, and two of the largest are more than 64 bits hold.
    return {"objects": len(sizes), "bytes": sum(sizes.to_pylist())}


def _claims(sound: pa.Table, kind: Kind, content: pa.ChunkedArray) -> Iterator[Claim]:
    columns = (content, sound["log_partition"], sound["log_offset"])
    return zip(_keys(sound, kind), *(column.to_pylist() for column in columns), strict=True)


def _keys(rows: pa.Table, kind: Kind) -> list[str]:
    names = [rows[column].to_pylist() for column in _COLUMNS[kind]]
    return list(map(event_key, *names)) if kind == "event" else names[0]


def _claim(
    writer: TableWriter, ledger: Ledger, kind: Kind, claims: Sequence[Claim], sound: pa.Table
) -> tuple[set[Position], set[Position]]:
    """Positions that came second for their key: with the same content, and with other content."""
    firsts = ledger.claim_first(kind, claims)
    # A claim of a log that is gone outlives a rollback or a restore that took its row away: there the table knows.
    sealed = {key: offset for key, (_, partition, offset) in firsts.items() if partition < 0}
    if sealed and (gone := sealed.keys() - _held(writer, kind, sealed, sound)):
        ledger.forget_claims(kind, gone)
        firsts |= ledger.claim_first(kind, [claim for claim in claims if claim[0] in gone])
    same: set[Position] = set()
    other: set[Position] = set()
    for key, content, *position in claims:
        first_content, *first_position = firsts[key]
        if first_content != content:
            other.add((position[0], position[1]))
        elif first_position != position:
            same.add((position[0], position[1]))
    return same, other


def _held(writer: TableWriter, kind: Kind, firsts: Mapping[str, int], sound: pa.Table) -> set[str]:
    """Those keys that the table has a first row of. Only files are read that can have it: a row stands at the offset
    that was claimed for it, and mostly has the time that is told again."""
    columns = list(_COLUMNS[kind])
    asked = sound.filter(pa.array([key in firsts for key in _keys(sound, kind)], pa.bool_())).select(
        [*columns, "occurred_at"]
    )
    times = pc.min_max(asked["occurred_at"])
    near = F.col("log_offset").between(min(firsts.values()), max(firsts.values()))
    near |= F.col("occurred_at").between(times["min"].as_py(), times["max"].as_py())
    if kind == "object":
        # The claim has the place of the first one about it, and the first row may be a correction's by now.
        near = (near | F.col("corrects").isNotNull()) & F.col("first_of_object")
    names = F.broadcast(writer.spark.createDataFrame(asked.select(columns)))
    found = read_table(writer.spark, EVENTS).where(near).join(names, columns, "left_semi")
    return set(_keys(to_arrow(found.select(*columns)), kind))


def are_among(rows: pa.Table, positions: Collection[Position]) -> pa.Array:
    if not positions:
        return pa.repeat(False, len(rows))
    return pa.array([position in positions for position in _positions(rows)], pa.bool_())


def _positions(seen: pa.Table) -> list[Position]:
    return list(zip(seen["log_partition"].to_pylist(), seen["log_offset"].to_pylist(), strict=True))
