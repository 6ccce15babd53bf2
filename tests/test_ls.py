"""What is in a lake and whose it is: listed by customer, kind and time, page by page, without a JVM."""

from pathlib import Path

import pytest
from calling import answer
from lakes import CALL, CHAT, SCREEN, parts_of, small_lake
from sample_rows import append, rows

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.domain.tables import EVENTS
from headwater.errors import InvalidRequest
from headwater.lake import Lake

ZOE = "audio/acme/2026-03-05/B%C3%BCro/Zo%C3%AB.wav"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = small_lake(tmp_path_factory.mktemp("ls") / "lake")
    with lakes.open(made) as lake:
        huge = {"path": ZOE, "offset": 0, "size": (1 << 63) - 1, "content_type": "audio/wav", "checksum": "0" * 64}
        about = {"object_id": ZOE, "event_id": ZOE, "customer": "acme", "modality": "audio", "pointer": huge}
        again = {**about, "event_id": "second", "first_of_object": False}
        append(parts_of(lake).catalog.load_table(EVENTS.name), rows(EVENTS, [about, again], 3), EVENTS.day)
    return made


@pytest.fixture
def lake(directory: Path) -> Lake:
    return lakes.open(directory)


def ids(found: dict[str, list[dict[str, str]]]) -> list[str]:
    return [one["id"] for one in found["objects"]]


def test_objects_are_told_once_the_last_first_with_their_names(lake: Lake) -> None:
    found = lake.ls()
    assert ids(found) == [ZOE, CHAT, SCREEN, CALL] and found["next"] is None
    assert [one["name"] for one in found["objects"]] == ["Büro/Zoë.wav", "m1", "screen.png", "call.wav"]
    call = found["objects"][-1]
    assert (call["customer"], call["modality"], call["event_id"]) == ("acme", "audio", "e1")
    assert call["checksum"] and call["occurred_at"].endswith("Z")


def test_objects_are_chosen_by_customer_kind_and_time_and_come_in_pages(lake: Lake) -> None:
    assert ids(lake.ls(customer="globex")) == [SCREEN]
    assert ids(lake.ls(customer="acme", modality="audio")) == [ZOE, CALL]
    assert ids(lake.ls(customer="nobody's")) == []
    at = lake.ls(modality="image")["objects"][0]["occurred_at"]
    assert SCREEN in ids(lake.ls(since=at)) and SCREEN not in ids(lake.ls(until=at))
    seen, before = [], None
    for _ in range(4):
        page = lake.ls(limit=1, before=before)
        seen += ids(page)
        before = page["next"]
    assert seen == [ZOE, CHAT, SCREEN, CALL] and before is None
    with pytest.raises(InvalidRequest, match="no modality"):
        lake.ls(modality="smell")
    with pytest.raises(InvalidRequest, match="since must lie before"):
        lake.ls(since="2026-03-02", until="2026-03-01")


def test_customers_are_told_with_what_they_have(lake: Lake) -> None:
    acme, globex = lake.customers()
    assert (acme["customer"], acme["objects"], acme["modalities"]) == ("acme", 3, {"audio": 2, "chat": 1})
    assert acme["bytes"] == (1 << 63) - 1 and acme["first_at"] <= acme["last_at"]
    assert (globex["customer"], globex["objects"]) == ("globex", 1)
    assert set(acme) == {"customer", "objects", "bytes", "first_at", "last_at", "modalities"}


def test_the_commands_show_what_a_person_wrote(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = answer(capsys, "ls", "--limit", "2", "--lake", directory)
    assert "Büro/Zoë.wav" in shown.out and "%C3" not in shown.out and "--before" in shown.err
    assert ids(answer(capsys, "ls", "--customer", "globex", "--json", "--lake", directory).json) == [SCREEN]
    assert "2 audio, 1 chat" in answer(capsys, "customers", "--lake", directory).out
    traced = answer(capsys, "trace", "audio/acme/2026-03-05/Büro/Zoë.wav", "--json", "--lake", directory)
    assert traced.json["object"]["id"] == ZOE, "a path is found as it is shown"


def test_an_empty_lake_says_how_to_fill_it_and_status_counts_what_landed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    assert main(["init", str(lake)]) == 0
    for command in ("ls", "customers"):
        assert "headwater run --once" in answer(capsys, command, "--lake", lake).out
    with (lake / "headwater.toml").open("a") as file:
        file.write('\n[put]\ncustomer = "acme"\n')
    for number in range(3):
        assert main(["put", "--text", f"hello {number}", "--lake", str(lake)]) == 0
    assert main(["put", "--text", "hello", "--customer", "globex", "--lake", str(lake)]) == 0
    assert "0 objects, 0 B, and 4 events landed that no run has read" in answer(capsys, "status", "--lake", lake).out


def test_what_nobody_owns_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "lake")]) == 0
    told = answer(capsys, "put", "--text", "hello", "--lake", tmp_path / "lake", "--json")
    assert told.code == InvalidRequest.exit_code and "put.customer" in told.out
    with lakes.open(tmp_path / "lake") as lake:
        with pytest.raises(InvalidRequest, match="customer"):
            lake.put_text("hello")
        with pytest.raises(InvalidRequest, match="customer"):
            lake.put(tmp_path)
