"""Quarantine as a place of work: what is set aside, why, and the way out."""

from collections import Counter
from typing import Any

from headwater.domain.quarantine import REASONS
from headwater.domain.tables import QUARANTINE
from headwater.errors import InvalidRequest
from headwater.storage.catalog import Tables
from headwater.storage.reading import scan, to_json_rows


def list_quarantine(catalog: Tables, reason: str | None = None) -> dict[str, Any]:
    """`{"reasons": [{"reason", "count", "way_out"}], "rows": [{…}]}`"""
    where = {"reason": check_reason(reason)} if reason else None
    rows = to_json_rows(scan(catalog, QUARANTINE.name, QUARANTINE.columns, where))
    counts = Counter(row["reason"] for row in rows)
    reasons = [{"reason": name, "count": count, "way_out": REASONS[name]} for name, count in counts.most_common()]
    return {"reasons": reasons, "rows": sorted(rows, key=lambda row: row["quarantined_at"])}


def check_reason(reason: str) -> str:
    if reason.upper() not in REASONS:
        raise InvalidRequest(f"{reason} is no reason for quarantine. These are: {', '.join(sorted(REASONS))}.")
    return reason.upper()
