"""What a notebook shows: hits, traces, tables and plans, with media where they are small; nothing in it runs."""

import copy
import json
import pickle
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from lakes import CALL, CALL_BYTES, CALL_CHUNK, small_lake

import headwater
from headwater.domain.shown import ShownDict, ShownObject, document_html
from headwater.lake import Lake

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m</td></table>'
HARMLESS = {"table", "tr", "th", "td", "p", "b", "blockquote", "audio", "img"}


class Page(HTMLParser):
    """Its tags and attributes; nothing else is a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.said = ""
        self.feed(html)
        for tag, attributes in self.found:
            assert tag in HARMLESS, tag
            assert not any(name.startswith("on") for name in attributes), attributes
            assert (attributes.get("src") or "data:audio/").startswith(("data:audio/", "data:image/jpeg")), attributes

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.said += data

    @property
    def players(self) -> list[str]:
        return [attributes["src"] or "" for tag, attributes in self.found if tag == "audio"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with headwater.open(small_lake(tmp_path_factory.mktemp("small") / "lake")) as lake:
        yield lake


def html(value: Any) -> Page:
    return Page(value._repr_html_())


def test_a_hit_has_a_player_that_starts_at_the_words(lake: Lake) -> None:
    shown = html(lake.search("refund", customer="acme"))
    assert shown.players[0].endswith("#t=65.0")
    assert "refund" in shown.said


def test_a_medium_that_cannot_be_drawn_is_left_out(lake: Lake) -> None:
    """The small lake's screenshot is no picture."""
    assert not [tag for tag, _ in html(lake.search("gateway", customer="globex")).found if tag == "img"]


@pytest.mark.parametrize("ask", [lambda lake: lake.trace(CALL_CHUNK), lambda lake: lake.view(CALL)])
def test_a_trace_is_a_dict_that_shows_its_medium_and_its_way(lake: Lake, ask: Any) -> None:
    found = ask(lake)
    shown = html(found)
    assert len(shown.players) == 1
    assert all(word in shown.said for word in (CALL, "silver.transcripts", "made of it", "vectors"))
    assert json.loads(json.dumps(found, default=str))["object"]["id"] == CALL
    assert isinstance(found, dict) and found == dict(found)


def test_a_sound_that_is_not_small_is_not_carried(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.facets.notebook._SOUND_BYTES", len(CALL_BYTES) - 1)
    assert html(lake.trace(CALL)).players == []


def test_a_copy_shows_itself_without_its_lake(lake: Lake) -> None:
    answer, found = lake.search("refund"), lake.trace(CALL)
    for other in (pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer)):
        assert other == answer
        assert html(other).players == []
    for other in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert other == found
        assert html(other).players == []


def test_tables_show_their_newest_rows(lake: Lake) -> None:
    assert "e2" in html(lake.table("events")).said
    assert "No rows." in html(lake.table("events", as_of="2999-01-01")).said or html(lake.table("captions")).said


def test_plans_and_quotes_show_their_steps(lake: Lake) -> None:
    plans = (lake.upkeep.plan_maintenance(), lake.upkeep.plan_rescan(), lake.models.quote("embed", "lexical"))
    for plan in plans:
        assert html(plan).found
        assert plan.to_dict()
    assert "lexical" in html(plans[2]).said


def test_nothing_that_came_in_is_taken_for_a_page() -> None:
    row = {HOSTILE: HOSTILE, "list": [HOSTILE], "map": {HOSTILE: HOSTILE}, "flag": True, "many": 1.5, "none": None}
    Page(document_html({**row, "rows": [row, {"other": HOSTILE}] * 40}))
    html(ShownDict(row))
    event = {"event_id": HOSTILE, "customer": HOSTILE, "modality": HOSTILE, "text": HOSTILE, "thread": HOSTILE}
    thing = {"id": HOSTILE, "size": 1, "content_type": HOSTILE, "exists": True}
    found = {"object": thing, "event": event, "derived": [row], "vectors": [row], "quarantined": [{"reason": HOSTILE}]}
    shown = html(ShownObject({**found, "labels": {HOSTILE: HOSTILE}, "texts": [{"text": HOSTILE, "model": HOSTILE}]}))
    assert "alert(1)" in shown.said


def test_a_long_value_is_cut_and_many_rows_are_counted(lake: Path) -> None:
    shown = Page(document_html({"text": "x" * 10_000, "rows": [{"n": number} for number in range(100)]}))
    assert "and 70 more" in shown.said
    assert len(shown.said) < 2_000
