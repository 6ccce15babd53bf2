"""Texts are bought once: what was answered is kept whatever becomes of the rest, and each call is counted."""

from collections.abc import Mapping
from typing import Any

import pytest
from endpoint_models import *  # noqa: F403
from endpoint_models import embedder
from endpoint_server import EndpointServer, changed, fail, garbage

from headwater.flow.embed.asking import WORD, Answer, Embedder
from headwater.flow.models.spending import OVER_BUDGET, Purse

TEXTS = [f"text number {number}" for number in range(8)]


class Memory:
    """What was told to be remembered."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, fresh: Mapping[str, Answer]) -> None:
        self.texts += fresh


def sent(server: EndpointServer) -> list[list[str]]:
    return [request.content["input"] for request in server.requests]


def one_bad_vector(answer: dict[str, Any]) -> dict[str, Any]:
    answer["data"][2]["embedding"] = [float("inf")] * 8
    return answer


def spent(answers: Mapping[str, Answer]) -> float:
    return sum(answer["cost"] for answer in answers.values())


def paid(server: EndpointServer, **options: Any) -> Embedder:
    options = {"price": 1.0, "price_unit": "call", "batch_items": 4, **options}
    return Embedder(embedder(server, **options), sleep=lambda seconds: None)


def test_one_bad_vector_in_a_batch_is_asked_for_again_and_the_others_are_not(server: EndpointServer) -> None:
    server.script(changed(one_bad_vector))
    answers = paid(server).ask_all(TEXTS, memory := Memory())
    assert all("vector" in answer for answer in answers.values()) and sorted(memory.texts) == TEXTS
    assert sent(server) == [TEXTS[:4], [TEXTS[2]], TEXTS[4:]]
    assert spent(answers) == pytest.approx(3.0)


def test_a_vector_that_stays_bad_costs_its_own_text_alone(server: EndpointServer) -> None:
    server.when(lambda request: request.content["input"] == [TEXTS[2]], garbage(b'{"data": []}'))
    server.script(changed(one_bad_vector))
    answers = paid(server).ask_all(TEXTS, Memory())
    assert [text for text, answer in answers.items() if "reason" in answer] == [TEXTS[2]]
    assert spent(answers) == pytest.approx(3.0)  # a useless answer has been paid for


def test_what_was_bought_one_by_one_is_remembered_though_the_embedder_goes_down(server: EndpointServer) -> None:
    server.script(garbage(), *[changed(lambda good: good)] * 2, *[fail(500)] * 6)
    asked = paid(server, breaker_failures=2, breaker_seconds=60)
    answers = asked.ask_all(TEXTS, memory := Memory())
    assert memory.texts == TEXTS[:2]
    assert [answers[text]["reason"] for text in TEXTS[2:]] == ["MODEL_DOWN"] * 6
    assert spent(answers) == pytest.approx(2 * 0.25 + 2)


def test_the_word_that_tells_whether_an_embedder_is_up_is_paid_from_the_same_purse(server: EndpointServer) -> None:
    failed = [fail(500)] * 2
    server.script(*failed)
    asked = Embedder(paid(server, breaker_failures=2, breaker_seconds=0.1).model)
    answers = asked.ask_all(TEXTS[:4], Memory(), Purse(3.5))
    assert sent(server)[2:] == [[WORD], [TEXTS[0]], [TEXTS[1]]]
    assert spent(answers) == pytest.approx(3.0) and answers[TEXTS[2]]["reason"] == OVER_BUDGET

    server.script(*failed)
    server.requests.clear()
    answers = asked.ask_all(TEXTS[:4], Memory(), Purse(0.5))
    assert server.requests == [] and {answer["reason"] for answer in answers.values()} == {OVER_BUDGET}


def test_no_call_is_made_that_the_purse_cannot_pay(server: EndpointServer) -> None:
    answers = paid(server).ask_all(TEXTS, memory := Memory(), Purse(1.5))
    assert sent(server) == [TEXTS[:4]] and memory.texts == TEXTS[:4]
    assert {answers[text]["reason"] for text in TEXTS[4:]} == {OVER_BUDGET}
    assert spent(answers) == pytest.approx(1.0)


def test_a_service_that_spoils_its_answers_does_not_empty_the_purse(server: EndpointServer) -> None:
    """A useless answer for four, then for each of them: five calls for nothing, if there were no purse."""
    server.always(garbage())
    answers = paid(server).ask_all(TEXTS, Memory(), Purse(3.0))
    assert len(server.requests) == 3
    assert spent(answers) == pytest.approx(3.0)


def test_tokens_are_bounded_by_bytes_before_a_call_and_told_by_the_service_after_it(server: EndpointServer) -> None:
    texts = ["你好世界" * 10, "hello world " * 4]
    card = {"price_unit": "1k_tokens", "price": 1_000.0, "batch_items": 1}  # one for each token
    bound = [len(text.encode()) + 16 for text in sorted(texts, key=len)]
    assert paid(server, **card).ask_all(texts, Memory(), Purse(bound[0] - 1))[texts[0]]["reason"] == OVER_BUDGET
    assert server.requests == []
    # The first says that it took eight times as many words: that, and not the guess, is what is left for the second.
    server.script(changed(lambda good: {**good, "usage": {"total_tokens": bound[0] - 8}}))
    answers = paid(server, **card).ask_all(texts, Memory(), Purse(bound[0] + bound[1] - 9))
    assert len(server.requests) == 1 and spent(answers) == bound[0] - 8


def test_a_service_that_does_not_tell_what_it_billed_is_counted_by_the_bound(server: EndpointServer) -> None:
    server.script(changed(lambda good: {"data": good["data"]}))
    answers = paid(server, price_unit="1k_tokens", price=1_000.0).ask_all(["refund"], Memory())
    assert spent(answers) == len("refund") + 16
