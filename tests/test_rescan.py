"""Rescan: what was stored but never arrived is announced again, once, as `put` would have."""

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from lakes import CALL, parts_of, small_lake

from headwater import lake as lakes
from headwater.domain.modality import Modality
from headwater.errors import NotFound
from headwater.lake import Lake
from headwater.storage.ledger.losses import LOST, close_losses, count_lost
from headwater.upkeep.rescan import event_of, plan_rescan

LATER = datetime.now(UTC) + timedelta(hours=1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lakes.open(small_lake(tmp_path / "lake"))


def test_only_objects_that_no_event_names_are_announced_and_a_second_time_none(lake: Lake) -> None:
    parts = parts_of(lake)
    key = "documents/o%27neil/2026-03-02/a%20b.pdf"
    parts.raw_store.put_bytes(key, b"%PDF", "application/pdf")
    parts.raw_store.put_bytes("notes/readme.txt", b"not ours", "text/plain")
    plan = plan_rescan(parts.raw_store, parts.reader, parts.log, now=LATER)
    assert ([found.path for found in plan.orphans], plan.foreign) == ([key], ("notes/readme.txt",))
    before = parts.log.end()[0]
    assert lake.rescan(plan) == 1
    (line,) = parts.log.read(0, before, 10)
    assert f'"event_id": "{key}"' in line.value


def test_the_event_is_the_one_that_put_would_have_made(lake: Lake) -> None:
    parts = parts_of(lake)
    key = "documents/o%27neil/2026-03-02/a%20b.pdf"
    parts.raw_store.put_bytes(key, b"%PDF", "application/pdf")
    found = parts.raw_store.head(key)
    assert found is not None
    event = event_of(parts.raw_store, found)
    assert event is not None
    assert (event.event_id, event.modality, event.customer) == (key, Modality.DOCUMENT, "o'neil")
    assert event.occurred_at.date().isoformat() == "2026-03-02"
    assert event.pointer.checksum == hashlib.sha256(b"%PDF").hexdigest()
    assert event.pointer.content_type == "application/pdf"


def test_an_object_whose_event_may_still_be_on_its_way_is_passed_over(lake: Lake) -> None:
    parts_of(lake).raw_store.put_bytes("audio/acme/2026-03-01/new.wav", b"RIFF", "audio/wav")
    assert lake.plan_rescan().orphans == ()
    assert CALL not in lake.plan_rescan().foreign


def test_losses_stay_open_until_a_rescan_has_looked(lake: Lake) -> None:
    ledger = parts_of(lake).ledger
    ledger.start_run(LOST, LATER, {"partition": 0, "first": 3, "until": 8, "cause": "expired unread"})
    ledger.start_run(LOST, LATER, {"partition": 1, "first": 3, "until": None, "cause": "the log was made anew"})
    assert lake.status()["log"]["lost"] == count_lost(ledger) == 6
    assert lake.rescan() == 0
    assert lake.status()["log"]["lost"] == 0
    assert close_losses(ledger, "rescanned", LATER) == 0


def test_a_lake_that_is_not_there_is_not_rescanned(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        lakes.open(tmp_path / "nowhere")
