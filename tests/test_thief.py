"""A thief knows the checksum of somebody's call, or its path, and announces it: nobody's answers are given away."""

import hashlib
import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import rounds
from counted import *  # noqa: F403
from lakes import parts_of

from headwater.domain.event import Event
from headwater.domain.modality import Modality
from headwater.flow.land_text import text_event
from headwater.lake import Lake

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
OWN = "audio/thief/2026-03-01"


def put(lake: Lake, file: Path, customer: str) -> Event:
    (landed,) = lake.put(file, customer=customer, at=AT)
    assert landed.event is not None
    return landed.event


def stolen(event: Event, name: str, **changes: object) -> Event:
    """An event of the thief's own about the content of somebody else's."""
    path = f"{OWN}/{name}"
    return replace(event, event_id=name, customer="thief", pointer=replace(event.pointer, path=path, **changes))  # type: ignore[arg-type]


def customers_in(lake: Lake) -> dict[str, set[str]]:
    tables = ("metadata", "transcripts", "captions", "embeddings")
    return {name: set(lake.table(name, all_models=True).to_arrow()["customer"].to_pylist()) for name in tables}


@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "after the memo has it"])
def test_a_checksum_is_a_claim_and_answers_are_given_for_bytes_alone(
    lake: Lake, calls: Path, tmp_path: Path, together: bool
) -> None:
    folder = rounds.make_media(tmp_path, 1)
    own = put(lake, folder / "call-1-1.wav", "honest")
    call, log = rounds.make_media(tmp_path / "victim", 1) / "call-1-0.wav", parts_of(lake).log
    if not together:
        event = put(lake, call, "victim")
        lake.run()
    # Before the victim's own in the log: whoever is asked first must not answer for the others.
    else:
        event = replace(own, pointer=replace(own.pointer, checksum=_checksum(call), size=call.stat().st_size))
    junk = parts_of(lake).raw_store.put_bytes(f"{OWN}/other.wav", (folder / "call-1-1.wav").read_bytes(), "audio/wav")
    half = parts_of(lake).raw_store.put_bytes(f"{OWN}/half.wav", call.read_bytes()[:8_000], "audio/wav")
    assert junk.checksum != event.pointer.checksum != half.checksum
    log.publish([stolen(event, name) for name in ("none.wav", "other.wav", "half.wav")])
    if together:
        put(lake, call, "victim")
    put(lake, call, "copy")
    lake.run()

    reasons = {row["event_id"]: row["reason"] for row in lake.quarantine()["rows"]}
    assert reasons == {"none.wav": "MISSING_OBJECT", "other.wav": "CORRUPT", "half.wav": "CORRUPT"}
    served = {"victim", "copy", "honest"}
    assert customers_in(lake) == {"metadata": served, "transcripts": served, "captions": set(), "embeddings": served}
    assert not lake.search("a call of loudness", customer="thief").hits
    assert len(calls.read_text().split()) == 2, "two contents, each heard once"

    assert lake.retry().recovered == 0
    assert lake.models.replay("transcribe", "louder").finished
    assert lake.models.replay("embed", "near").finished
    assert set(customers_in(lake)["transcripts"]) == set(customers_in(lake)["embeddings"]) == served
    # Who brings the bytes after all has them, and what they say.
    parts_of(lake).raw_store.put_bytes(f"{OWN}/none.wav", call.read_bytes(), "audio/wav")
    lake.retry()
    assert lake.search("a call of loudness", customer="thief").hits


def _checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_who_announces_somebody_elses_path_neither_owns_it_nor_keeps_its_owner_from_it(
    lake: Lake, tmp_path: Path
) -> None:
    data = (rounds.make_media(tmp_path, 1) / "call-1-0.wav").read_bytes()
    pointer = parts_of(lake).raw_store.put_bytes("audio/a%20victim/2026-03-01/call.wav", data, "audio/wav")
    event = Event("v1", Modality.AUDIO, "a victim", pointer, AT)
    victim = event.to_dict()
    lines = [
        {**victim, "event_id": "t1", "customer": "thief"},
        {**victim, "event_id": "t2", "customer": "a%20victim"},
        {**victim, "event_id": "t3", "customer": "thief", "pointer": {**victim["pointer"], "checksum": "ab" * 32}},
        {**victim, "event_id": "t4", "customer": "thief", "modality": "chat", "text": "mine"},
    ]
    chat = text_event("what I wrote", "victim", "m1", AT)
    lines.append({**chat.to_dict(), "event_id": "t5", "customer": "thief"})
    log = parts_of(lake).log
    # The thief is first.
    log.publish_raw([json.dumps(line) for line in lines])  # type: ignore[attr-defined]
    log.publish([event, chat])
    lake.run()

    held = lake.quarantine()
    assert Counter(row["reason"] for row in held["rows"]) == {"WRONG_CUSTOMER": 5}
    assert all("publish" in reason["way_out"] for reason in held["reasons"])
    assert {row["customer"] for row in lake.table("events").to_arrow().to_pylist()} == {"a victim", "victim"}
    assert customers_in(lake)["embeddings"] == {"a victim", "victim"}
    assert lake.retry().tried == 0
