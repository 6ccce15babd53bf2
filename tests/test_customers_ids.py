"""An id belongs to its customer: two customers may have the same, and whoever asks by id says whose, or is asked."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from calling import answer
from lakes import CALL, parts_of, small_lake

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.domain.keys import event_key
from headwater.errors import InvalidRequest
from headwater.storage.ledger.dismissals import QuarantineKey, dismiss, undo_dismissals

WAV = b"RIFF, and nothing of a recording"


@pytest.fixture(scope="module")
def shared(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both customers have a message m-1 and a broken call c-1, and only one a message m-2."""
    place = tmp_path_factory.mktemp("ids")
    with lakes.init(place / "lake") as lake:
        for customer in ("acme", "globex"):
            lake.put_text(f"hello from {customer}", customer=customer, id="m-1")
            (place / "call.wav").write_bytes(WAV + customer.encode())
            lake.put(place / "call.wav", customer=customer, id="c-1")
        lake.put_text("only mine", customer="acme", id="m-2")
        lake.run()
    return place / "lake"


def test_two_customers_may_have_the_same_id(shared: Path) -> None:
    with lakes.open(shared) as lake:
        rows = lake.sql("select customer, text from events where event_id = 'm-1' order by customer")["rows"]
        assert rows == [
            {"customer": "acme", "text": "hello from acme"},
            {"customer": "globex", "text": "hello from globex"},
        ]
        held = lake.quarantine()
        assert {row["reason"] for row in held["rows"]}.isdisjoint({"CONFLICT"})
        assert {(row["customer"], row["event_id"]) for row in held["rows"]} == {("acme", "c-1"), ("globex", "c-1")}


def test_a_trace_of_an_id_of_several_asks_whose_is_meant(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = answer(capsys, "trace", "m-1", "--lake", shared)
    assert asked.code == InvalidRequest.exit_code
    assert "each of acme, globex" in asked.err and "--customer" in asked.err
    with lakes.open(shared) as lake:
        for customer in ("acme", "globex"):
            told = answer(capsys, "trace", "m-1", "--customer", customer, "--lake", shared, "--json").json
            assert (told["event"]["customer"], told["object"]["exists"]) == (customer, True)
            assert b"".join(lake.get("m-1", customer=customer)) == f"hello from {customer}".encode()
            (refused,) = {row["event_id"] for row in lake.trace("c-1", customer=customer)["quarantined"]}
            assert refused == "c-1"
        assert lake.trace("m-2")["event"]["customer"] == "acme"
        with pytest.raises(InvalidRequest, match="--customer"):
            lake.get("m-1")


def test_a_retry_tries_each_customer_s_object_once(shared: Path) -> None:
    with lakes.open(shared) as lake:
        before = len(lake.quarantine()["rows"])
        retried = lake.quarantine.retry()
        assert (retried.tried, retried.still_quarantined) == (before, before)
        assert len(lake.quarantine()["rows"]) == before


def test_what_is_let_go_of_one_customer_s_waits_on_for_the_other(shared: Path) -> None:
    with lakes.open(shared) as lake:
        (mine,) = {row["object_id"] for row in lake.quarantine()["rows"] if row["customer"] == "acme"}
        lake.quarantine.dismiss(mine, because="a test", by="Ada")
        try:
            held = lake.quarantine()
            assert {row["customer"] for row in held["rows"]} == {"globex"}
            assert {row["customer"] for row in held["dismissed"]} == {"acme"}
            status = lake.status()
            assert (status["quarantined"], status["dismissed"]) == (len(held["rows"]), len(held["dismissed"]))
            assert lake.quarantine.retry().tried == len(held["rows"])
        finally:
            lake.quarantine.dismiss(mine, undo=True)
        assert {row["customer"] for row in lake.quarantine()["rows"]} == {"acme", "globex"}


def test_what_was_let_go_when_ids_were_of_a_whole_lake_stays_so(shared: Path) -> None:
    with lakes.open(shared) as lake:
        ledger, rows = parts_of(lake).ledger, lake.quarantine()["rows"]
        keys = [QuarantineKey.of(row) for row in rows]
        dismiss(ledger, [key.of_anybody for key in keys], now=datetime.now(UTC), by="Ada", because="a test")
        assert not lake.quarantine()["rows"] and lake.status()["dismissed"] == len(rows)
        undo_dismissals(ledger, keys)
        assert len(lake.quarantine()["rows"]) == len(rows)


def test_an_id_that_an_old_lake_has_seen_stays_seen_and_stays_its_customer_s(tmp_path: Path) -> None:
    directory = small_lake(tmp_path / "lake")
    with lakes.open(directory) as lake:
        hashes = {
            row["event_id"]: row["content_hash"]
            for row in lake.sql("select event_id, content_hash from events")["rows"]
        }
        ledger = parts_of(lake).ledger
        ledger.claim_first("event", [(name, content, 0, at) for at, (name, content) in enumerate(hashes.items())])
        ledger.claim_first("object", [(CALL, "checksum", 0, 0)])
        ledger.set_fact("format", "5")
    for _ in range(2):
        assert main(["--lake", str(directory), "upgrade"]) == 0
        with lakes.Lake(parts_of(lake)) as again:
            parts_of(again).ledger.set_fact("format", "5")  # killed before it was noted
    assert main(["--lake", str(directory), "upgrade"]) == 0
    with lakes.open(directory) as lake:
        ledger = parts_of(lake).ledger
        same = ledger.claim_first("event", [(event_key("e1", "acme"), hashes["e1"], 9, 9)])
        content, partition, _ = same[event_key("e1", "acme")]
        assert content == hashes["e1"] and partition < 0, "seen, at a place that no log has"
        other = ledger.claim_first("event", [(event_key("e1", "globex"), "other", 9, 9)])
        assert other == {event_key("e1", "globex"): ("other", 9, 9)}
        assert ledger.claim_first("object", [(CALL, "checksum", 9, 9)]) == {CALL: ("checksum", 0, 0)}
