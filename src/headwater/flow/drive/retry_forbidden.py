"""What a rule forbade and the rules allow now is taken into bronze, as if it had come today.

Reads   silver.quarantine (reason FORBIDDEN), the log, the rules of the settings
Writes  bronze.events, silver.quarantine
Key     a line's place in the log
Invariant: a line leaves quarantine after its event is in bronze, so a kill in between loses none; it is found there
when it is tried again, and taken once.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from headwater.clock import Clock
from headwater.domain.groups import grouped
from headwater.domain.producers import KEPT_LETTERS, Rules, refused_producer
from headwater.domain.quarantine import FORBIDDEN, Retried
from headwater.domain.tables import QUARANTINE
from headwater.errors import NotFound
from headwater.flow.bronze import take_again
from headwater.storage.ledger.dismissals import QuarantineKey, find_dismissals
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.tables.read_table import collect, read_table
from headwater.storage.tables.rewrite_files import remove_seqs
from headwater.storage.tables.writer import TableWriter

_ROWS_AT_ONCE: Final = 2_000
_BYTES_AT_ONCE: Final = 64 << 20
_SENT: Final = ("log_partition", "log_offset", "payload")
_LINES: Final = pa.schema(
    [("log_partition", pa.int32()), ("log_offset", pa.int64()), ("log_end", pa.int64()), ("value", pa.binary())]
)


def retry_forbidden(writer: TableWriter, ledger: Ledger, log: PointerLog, clock: Clock) -> Retried:
    """Every line that was set aside for its producer, by the rules that are set now. What stays forbidden stays, and so
    does a line that was too long to be kept whole, once the log has let go of it."""
    rules, total = Rules.of(writer.settings), Retried(0, 0, 0)
    for numbers in _portions(writer, ledger):
        held = read_table(writer.spark, QUARANTINE).where(F.col("seq").isin(numbers) & _forbidden())
        rows = collect(held.select("seq", "customer", "detail", *_SENT).orderBy("seq"))
        lines = {row["seq"]: line for row in rows if _may(rules, row) and (line := _line(log, row))}
        if lines:
            take_again(writer, pa.Table.from_pylist(list(lines.values()), _LINES), ledger=ledger, clock=clock)
            remove_seqs(writer, QUARANTINE, list(lines))
        total += Retried(len(rows), len(lines), len(rows) - len(lines))
    return total


def _portions(writer: TableWriter, ledger: Ledger) -> Iterator[list[int]]:
    """Numbers of rows that nobody let go, as many as the driver holds with what they say."""
    size = F.coalesce(F.octet_length("payload"), F.lit(0)).alias("size")
    held = read_table(writer.spark, QUARANTINE).where(_forbidden())
    rows = collect(held.select("seq", size, *QuarantineKey._fields).orderBy("seq"))
    let_go = find_dismissals(ledger, map(QuarantineKey.of, rows))
    waiting = [row for row in rows if QuarantineKey.of(row) not in let_go]
    for some in grouped(waiting, lambda row: row["size"], most_bytes=_BYTES_AT_ONCE, most_items=_ROWS_AT_ONCE):
        yield [row["seq"] for row in some]


def _forbidden() -> Column:
    return F.col("reason") == FORBIDDEN


def _may(rules: Rules, row: Row) -> bool:
    return rules.problem(refused_producer(row["detail"]), row["customer"]) is None


def _line(log: PointerLog, row: Row) -> dict[str, Any] | None:
    """As the log had it."""
    value = row["payload"]
    if len(value) >= KEPT_LETTERS and (value := _value_in(log, row)) is None:
        return None
    offset = row["log_offset"]
    sent = (row["log_partition"], offset, offset + 1, value.encode())
    return dict(zip(_LINES.names, sent, strict=True))


def _value_in(log: PointerLog, row: Row) -> str | None:
    """The whole of it, where it is still there; another log may have another line at its place."""
    try:
        found = log.read(row["log_partition"], row["log_offset"], 1)
    except NotFound:
        return None
    return next((line.value for line in found if line.value.startswith(row["payload"])), None)
