"""Labels, facts and threads: what is known of an object is found, shown and asked for."""

import json
from pathlib import Path
from typing import Any

import pytest
from lakes import CALL, CHAT, SCREEN, parts_of, small_lake

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.errors import InvalidRequest, NotFound


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    with lakes.open(small_lake(tmp_path / "lake")) as lake:
        yield lake


def objects(answer: Any) -> set[str]:
    return {hit.entry.object_id for hit in answer.hits}


@pytest.mark.parametrize(("key", "value"), [("k", "\ud800"), ("\ud800", "v")])
def test_half_a_letter_is_refused_where_it_is_said_and_where_it_is_asked_for(
    lake: lakes.Lake, key: str, value: str
) -> None:
    for asking in (
        lambda: lake.label(CHAT, {key: value}, by="ann"),
        lambda: lake.search("hello", where={key: value}),
        lambda: lake.ls(where={key: value}),
    ):
        with pytest.raises(InvalidRequest, match="not valid Unicode"):
            asking()


def test_an_object_is_labelled_by_any_of_its_ids_found_shown_and_asked_for(lake: lakes.Lake) -> None:
    assert lake.label("m1", {"mood": "angry", "vip": "true"}, by="ann")["object"] == CHAT
    lake.label(CALL, "mood=calm", by="bob")
    assert objects(lake.search("hello refund", where={"mood": "angry"})) == {CHAT}
    assert objects(lake.search("hello refund", where=["mood=angry", "vip=true"])) == {CHAT}
    assert objects(lake.search("hello refund", where={"mood": "calm", "vip": "true"})) == set()
    assert [(label["key"], label["value"], label["labelled_by"]) for label in lake.trace("m1")["labels"]] == [
        ("mood", "angry", "ann"),
        ("vip", "true", "ann"),
    ]
    rows = lake.sql("select key, value, labelled_by from labels where object_id like 'audio%'")["rows"]
    assert rows == [{"key": "mood", "value": "calm", "labelled_by": "bob"}]
    joined = "select e.event_id from events e join labels l using (object_id) where l.key = 'vip'"
    assert lake.sql(joined)["rows"] == [{"event_id": "m1"}]


def test_another_value_takes_a_labels_place_and_removing_takes_it_back(lake: lakes.Lake) -> None:
    lake.label("m1", {"mood": "angry"}, by="ann")
    first = lake.label("m1", {"mood": "angry"}, by="bob")["labels"]
    assert first[0]["labelled_by"] == "ann", "who said it first stays the one"
    assert [label["value"] for label in lake.label("m1", {"mood": "calm"}, by="bob")["labels"]] == ["calm"]
    assert lake.label("m1", remove=["mood"], by="bob")["labels"] == []
    assert objects(lake.search("hello", where={"mood": "calm"})) == set()
    with pytest.raises(NotFound, match="no label mood"):
        lake.label("m1", remove=["mood"], by="bob")
    with pytest.raises(NotFound, match="nothing"):
        lake.label("nothing", {"a": "b"}, by="ann")
    for bad in ({"": "x"}, {"k" * 101: "x"}, {"k": "x" * 1001}):
        with pytest.raises(InvalidRequest):
            lake.label("m1", bad, by="ann")
    with pytest.raises(InvalidRequest, match="cannot be both"):
        lake.search("hello", where=["a=b", "a=c"])


def test_commands_label_find_and_take_back(lake: lakes.Lake, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--lake", str(lake.settings.lake)]
    assert main([*at, "label", "m1", "mood=angry", "--by", "ann"]) == 0
    assert "mood=angry" in capsys.readouterr().out
    assert main([*at, "search", "hello", "--where", "mood=angry", "--json"]) == 0
    (hit,) = json.loads(capsys.readouterr().out)["hits"]
    assert hit["pointer"]["path"] == CHAT and hit["meta"] is None
    assert main([*at, "trace", "m1"]) == 0
    assert "label mood=angry  ann" in capsys.readouterr().out
    assert main([*at, "label", "m1", "--remove", "mood", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"object": CHAT, "labels": []}
    assert main([*at, "label", "m1"]) == InvalidRequest.exit_code
    assert main([*at, "label", "m1", "mood"]) == InvalidRequest.exit_code
    assert main([*at, "thread", "none"]) == NotFound.exit_code
    assert SCREEN not in capsys.readouterr().out


def test_labels_go_where_a_backup_of_the_ledger_goes(lake: lakes.Lake, tmp_path: Path) -> None:
    from headwater.storage.ledger.copy import read_ledger, write_ledger
    from headwater.storage.ledger.labels import read_labels
    from headwater.storage.ledger.ledger import open_ledger

    lake.label("m1", {"mood": "angry"}, by="ann")
    other = open_ledger(f"sqlite:///{tmp_path}/other.db")
    assert write_ledger(other, read_ledger(parts_of(lake).ledger))["labels"] == 1
    assert [(label.object_id, label.value) for label in read_labels(other)] == [(CHAT, "angry")]


def test_objects_are_listed_and_exported_by_what_is_known_of_them(tmp_path: Path) -> None:
    with lakes.open(small_lake(tmp_path / "lake")) as lake:
        lake.label("m1", {"mood": "angry"}, by="ann")
        assert [one["id"] for one in lake.ls(where={"mood": "angry"})["objects"]] == [CHAT]
        assert lake.ls(where={"mood": "calm"})["objects"] == []
        exported = lake.export(tmp_path / "out", where="mood=angry")
        assert (exported.objects, exported.missing) == (1, [])
        with pytest.raises(InvalidRequest, match="quotes"):
            lake.ls(where={'a"b': "c"})
