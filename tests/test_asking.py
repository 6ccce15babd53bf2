"""An embedder that is down is told from a text that it cannot bear, by a word that anybody can bear."""

from typing import Any

import pytest
from endpoint_models import embedder, server
from endpoint_server import EndpointServer, Trick, fail, hang_up

from headwater.errors import Unavailable
from headwater.flow.embed.asking import WORD, Embedder
from headwater.flow.models.call_policy import TimeAndChance

__all__ = ["server"]
TEXTS = [f"text number {number}" for number in range(6)]


class Quick:
    """Waits at once; how long it should have waited is noted, and passes for the endpoint's own clock too."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def timing(self) -> TimeAndChance:
        return TimeAndChance(clock=lambda: self.now, sleep=self.sleep, chance=lambda: 0.5)


def asked(server: EndpointServer, quick: Quick, **options: Any) -> Embedder:
    options = {"batch_items": 4, "breaker_failures": 2, "breaker_seconds": 30, "deadline_seconds": 60, **options}
    return Embedder(embedder(server, quick.timing(), **options), quick.sleep)


def ask(one: Embedder, texts: list[str]) -> tuple[dict[str, str], list[str]]:
    """Who has no vector and why, and what was remembered."""
    kept: list[str] = []
    answers = one.ask_all(texts, kept.extend)
    assert set(answers) == set(texts)
    return {text: answer["reason"] for text, answer in answers.items() if "reason" in answer}, kept


def bad(word: str) -> Any:
    return lambda request: any(word in text for text in request.content["input"])


@pytest.mark.parametrize("trick", [fail(500), fail(503), hang_up()], ids=["500", "503", "hang up"])
def test_a_text_that_it_cannot_bear_costs_itself(server: EndpointServer, trick: Trick) -> None:
    quick = Quick()
    one = asked(server, quick)
    server.when(bad("number 3"), trick)
    aside, kept = ask(one, TEXTS)
    assert aside == {TEXTS[3]: "CRASHED"} and sorted(kept) == [text for text in TEXTS if text != TEXTS[3]]
    assert ask(one, [TEXTS[3]]) == ({TEXTS[3]: "CRASHED"}, []), "alone with it, the same"
    assert max(quick.waits) == pytest.approx(30), "an endpoint that wants to be left alone is"


def test_an_embedder_that_is_down_lets_all_texts_wait_and_is_asked_little(server: EndpointServer) -> None:
    quick = Quick()
    one = asked(server, quick)
    assert ask(one, TEXTS[:1]) == ({}, TEXTS[:1])
    server.always(fail(500))
    before = len(server.requests)
    assert ask(one, TEXTS) == (dict.fromkeys(TEXTS, "MODEL_DOWN"), [])
    # Two of the batch, then one word; from then on one word when the endpoint may be asked again.
    assert [request.content["input"] for request in server.requests[before + 2 :]] == [[WORD]]
    waited = len(quick.waits)
    assert ask(one, TEXTS) == (dict.fromkeys(TEXTS, "MODEL_DOWN"), [])
    assert len(server.requests) == before + 3 and len(quick.waits) == waited, "nobody is kept waiting for it"

    server.always()
    quick.now += 30
    assert ask(one, TEXTS) == ({}, sorted(TEXTS, key=len))


def test_a_text_is_not_blamed_for_an_outage_that_ends_meanwhile(server: EndpointServer) -> None:
    one = asked(server, Quick())
    server.script(fail(500), fail(500))
    assert ask(one, TEXTS) == ({}, TEXTS)
    server.script(fail(500), fail(500), Trick(), fail(500), fail(500), fail(500))
    aside, _ = ask(one, [*TEXTS, "more"])
    assert set(aside.values()) == {"MODEL_DOWN"}, "it went down again while texts were asked for alone"


def test_a_memo_that_cannot_be_written_is_not_taken_for_an_embedder_that_is_down(server: EndpointServer) -> None:
    def full(fresh: Any) -> None:
        raise Unavailable("The disk is full.")

    one = asked(server, Quick())
    with pytest.raises(Unavailable, match="disk is full"):
        one.ask_all(TEXTS, full)
    before = len(server.requests)
    assert ask(one, TEXTS) == ({}, TEXTS)
    assert WORD not in str([request.content["input"] for request in server.requests[before:]])
