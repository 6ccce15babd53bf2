"""Quarantine as a place of work: what is set aside, why, the way out, and trying again just those.

Retry runs the very code of the live flow over the quarantined objects. Rows that a table has already are left alone,
so a retry that is killed half-way can simply be run again.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from headwater.domain.quarantine import REASONS
from headwater.domain.tables import EVENTS, QUARANTINE
from headwater.errors import InvalidRequest
from headwater.storage.catalog import Tables
from headwater.storage.reading import scan, to_json_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.settings import Settings

# A line that was never an event, or that contradicts one, has nothing that could be derived again.
FINAL: Final = ("BAD_EVENT", "CONFLICT")


@dataclass(frozen=True, slots=True)
class Retried:
    """What became of the rows: out of quarantine, or back in with one attempt more."""

    tried: int
    recovered: int
    still_quarantined: int


def list_quarantine(catalog: Tables, reason: str | None = None) -> dict[str, Any]:
    """`{"reasons": [{"reason", "count", "way_out"}], "rows": [{…}]}`"""
    where = {"reason": check_reason(reason)} if reason else None
    rows = to_json_rows(scan(catalog, QUARANTINE.name, [n for n in QUARANTINE.schema.names if n != "seq"], where))
    counts = Counter(row["reason"] for row in rows)
    reasons = [{"reason": name, "count": count, "way_out": REASONS[name]} for name, count in counts.most_common()]
    return {"reasons": reasons, "rows": sorted(rows, key=lambda row: row["quarantined_at"])}


def check_reason(reason: str) -> str:
    if reason.upper() not in REASONS:
        raise InvalidRequest(f"{reason} is no reason for quarantine. These are: {', '.join(sorted(REASONS))}.")
    return reason.upper()


def retry(spark: "SparkSession", settings: "Settings", *, reason: str | None, now: datetime, tasks: int) -> Retried:
    """Derive again what is quarantined (for one reason, or all that can be), then take what was tried out."""
    from pyspark.sql import functions as F

    from headwater.flow.derive.plan import plan_work
    from headwater.flow.derive.stage import derive_again

    held = spark.table(f"lake.{QUARANTINE.name}").where(~F.col("reason").isin(*FINAL))
    if reason:
        held = held.where(F.col("reason") == check_reason(reason))
    held = held.select("seq", "event_id", "step", "attempts").persist()
    try:
        seqs = [row["seq"] for row in held.select("seq").collect()]
        if not seqs:
            return Retried(0, 0, 0)
        # A fault of the whole object was noted under its first step, so all its steps are tried again.
        only = F.when(F.col("step") != "probe", F.col("step")).alias("only")
        events = spark.table(f"lake.{EVENTS.name}").drop("seq")
        pending = events.join(F.broadcast(held.select("seq", "event_id", "attempts", only)), "event_id")
        derived = derive_again(spark, pending, plan_work(settings, now=now), tasks)
        spark.sql(f"DELETE FROM lake.{QUARANTINE.name} WHERE seq IN ({', '.join(map(str, seqs))})")
        return Retried(len(seqs), len(seqs) - derived.quarantined, derived.quarantined)
    finally:
        held.unpersist()
