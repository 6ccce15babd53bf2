"""Meta and thread from the log to every table and to a hit."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from lakes import parts_of

from headwater import lake as lakes
from headwater.flow.land_text import text_event

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
META = {"channel": "phone", "minutes": 7, "account": {"tier": "gold"}}


@pytest.mark.parametrize("driver_rows", [0, 1])
def test_meta_and_thread_are_carried_from_the_event_to_every_row_and_to_the_hit(
    tmp_path: Path, engine: None, driver_rows: int
) -> None:
    """With one row in the driver, a batch of two goes from table to table in Spark's tasks."""
    lakes.init(tmp_path).close()
    with lakes.open(tmp_path, {"run.driver_rows": driver_rows} if driver_rows else None) as lake:
        plain = text_event("where is my refund", "acme", "m1", AT)
        told = text_event("the refund is on its way " + "x" * 9_000, "acme", "m2", AT)
        parts_of(lake).log_to_write.publish([plain, replace(told, meta=META, thread="t1")])
        lake.run()
        for table in ("events", "messages", "embeddings"):
            rows = lake.sql(f"select distinct event_id, meta, thread from {table} order by event_id")["rows"]
            assert [(row["event_id"], row["thread"]) for row in rows] == [("m1", None), ("m2", "t1")], table
            assert rows[0]["meta"] is None and json.loads(rows[1]["meta"]) == META
        (row,) = lake.sql(
            "select (meta->>'minutes')::int * 2 as n from messages where meta->>'$.account.tier' = 'gold'"
        )["rows"]
        assert row == {"n": 14}
