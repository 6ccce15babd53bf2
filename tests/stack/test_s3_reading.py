"""A question costs on S3 what its answer needs: columns, row groups and files that it does not ask for stay there."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lakes import parts_of
from sample_rows import NOON, append, rows
from wire import Wire, wire_to

from headwater import lake as lakes
from headwater.domain.tables import EMBEDDINGS, MESSAGES, QUARANTINE
from headwater.errors import NotFound
from headwater.lake import Lake
from headwater.settings import FILE_NAME, Settings
from headwater.storage.tables.schema_evolution import add_columns

DAYS = 3
ROWS = 1_500  # of each day, with a vector that no compression makes smaller
DIMENSION = 384


@dataclass(frozen=True)
class Site:
    lake: Lake
    wire: Wire
    everything: int

    def share(self, ask: Callable[[], Any]) -> float:
        """How much of all bytes of the tables the server sent for it."""
        before = self.wire.bytes
        ask()
        return (self.wire.bytes - before) / self.everything


@pytest.fixture
def site(s3_settings: Settings, s3_client: Any, bucket: str, tmp_path: Path) -> Iterator[Site]:
    host, _, port = s3_settings.text("s3.endpoint").removeprefix("http://").partition(":")
    with wire_to(host, int(port)) as wire:
        told = {name: s3_settings.text(name) for name in ("s3.access_key", "s3.secret_key")}
        told |= {"s3.endpoint": f"http://127.0.0.1:{wire.port}", "catalog.warehouse": f"s3://{bucket}/warehouse"}
        (tmp_path / FILE_NAME).write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in told.items()))
        with lakes.init(tmp_path) as lake:
            fill(lake)
            sizes = [found["Size"] for found in s3_client.list_objects_v2(Bucket=bucket)["Contents"]]
            yield Site(lake, wire, sum(sizes))


def fill(lake: Lake) -> None:
    catalog, random = parts_of(lake).catalog, np.random.default_rng(9)
    for day in range(DAYS):
        given = [
            {"object_id": f"o{number}", "customer": f"c{number % 50:02}", "text": random.bytes(40).hex(),
             "occurred_at": NOON + timedelta(days=day), "vector": random.random(DIMENSION, np.float32)}
            for number in range(day * ROWS, (day + 1) * ROWS)
        ]  # fmt: skip
        append(catalog.load_table(EMBEDDINGS.name), rows(EMBEDDINGS, given, first_seq=day * ROWS))
    held: list[dict[str, Any]] = [{"reason": "BAD_EVENT", "payload": random.bytes(2_000).hex()} for _ in range(500)]
    append(catalog.load_table(QUARANTINE.name), rows(QUARANTINE, held), day="quarantined_at")


def test_sql_fetches_what_the_question_needs(site: Site) -> None:
    def asking(query: str) -> float:
        return site.share(lambda: site.lake.sql(query))

    assert asking("select 1 as one from embeddings limit 1") < 0.05
    assert asking("select customer, count(*) as n from embeddings group by 1") < 0.1
    assert asking("select text from embeddings order by seq desc limit 3") < 0.1
    a_day = "occurred_at >= timestamptz '2026-03-03 00:00:00Z'"
    assert 0.2 < asking(f"select sum(vector[1]) as s from embeddings where {a_day}") < 0.45, "one file of three"
    assert asking("select sum(vector[1]) as s from embeddings") > 0.6, "and what needs everything fetches it"


def test_status_and_metrics_fetch_no_rows_that_they_do_not_tell(site: Site) -> None:
    assert site.share(site.lake.status) < 0.05
    assert site.share(site.lake.metrics) < 0.05
    assert 'headwater_quarantined_by_reason{reason="BAD_EVENT"} 500' in site.lake.metrics()


def test_a_table_that_got_a_column_is_read_no_more_than_before(site: Site) -> None:
    add_columns(parts_of(site.lake).catalog, EMBEDDINGS.name, [pa.field("mood", pa.string())])
    found = site.lake.sql("select customer, mood from embeddings where seq = 7")
    assert found["rows"] == [{"customer": "c07", "mood": None}]
    assert site.share(lambda: site.lake.sql("select count(mood) as n, min(customer) as c from embeddings")) < 0.1


def test_an_object_that_is_gone_is_told_as_missing(site: Site, s3_client: Any, bucket: str) -> None:
    append(parts_of(site.lake).catalog.load_table(MESSAGES.name), rows(MESSAGES, [{"text": "hello", "segments": []}]))
    (task,) = parts_of(site.lake).catalog.load_table(MESSAGES.name).scan().plan_files()
    key = task.file.file_path.removeprefix(f"s3://{bucket}/")
    s3_client.delete_object(Bucket=bucket, Key=key)
    for ask in (lambda: site.lake.sql("select text from messages"), lambda: site.lake.table("messages").to_arrow()):
        with pytest.raises(NotFound, match=rf"s3://{bucket}/{key} is missing"):
            ask()
