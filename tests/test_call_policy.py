"""The call policy of endpoints, counted at a real server on loopback: asked again politely, left alone, paid once."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from endpoint_models import *  # noqa: F403
from endpoint_models import QUICK, embedder
from endpoint_server import EndpointServer, Trick, changed, fail, garbage, late, throttle
from waiting import PATIENCE_SECONDS

from headwater.errors import DataFault, Unavailable
from headwater.flow.models import endpoint
from headwater.flow.models.call_policy import CallLimits, CallPolicy, TimeAndChance, TryAgain
from headwater.flow.models.endpoint import retry_after_seconds
from headwater.flow.models.registry import load_model


def test_three_failures_then_an_answer_give_one_result_under_one_key(server: EndpointServer) -> None:
    server.script(fail(500), fail(502), fail(503))
    (found,) = embedder(server).run(["refund"])
    assert found.attempts == 4 and len(server.requests) == 4
    assert len(set(server.keys)) == 1 and sum(server.work.values()) == 1
    assert np.allclose(found.vector, np.array(server.vector("refund")) / np.linalg.norm(server.vector("refund")))


def test_the_key_is_the_same_after_a_restart_and_another_for_other_content_or_another_model(
    server: EndpointServer,
) -> None:
    for _ in range(2):
        embedder(server).run(["refund"])
    embedder(server).run(["invoice"])
    embedder(server, version="2").run(["refund"])
    first, again, other_text, other_model = server.keys
    assert first == again and len({first, other_text, other_model}) == 3
    assert sum(server.work.values()) == 3


def test_the_wait_that_a_server_asks_for_is_kept(server: EndpointServer) -> None:
    server.script(throttle(1))
    embedder(server).run(["refund"])
    first, second = server.requests
    assert second.at - first.at >= 1


def test_the_time_that_a_server_asks_for_is_waited_for(server: EndpointServer) -> None:
    asked = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    server.script(throttle(format_datetime(asked, usegmt=True)))
    embedder(server).run(["refund"])
    assert datetime.now(UTC) >= asked and len(server.requests) == 2


def test_the_wait_that_one_thread_is_asked_for_holds_all_of_them(server: EndpointServer) -> None:
    asleep = threading.Event()

    def sleep(seconds: float) -> None:
        asleep.set()
        QUICK.sleep(seconds)

    server.script(throttle(2))
    model = embedder(server, replace(QUICK, sleep=sleep))
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(model.run, ["a"])
        assert asleep.wait(PATIENCE_SECONDS)
        list(pool.map(lambda text: model.run([text]), "bcd"))
        first.result()
    assert min(later.at for later in server.requests[1:]) - server.requests[0].at >= 2


def test_a_wait_beyond_the_deadline_is_not_waited_for(server: EndpointServer) -> None:
    server.script(throttle(3600))
    model = embedder(server, deadline_seconds=5)
    started = time.monotonic()
    for _ in range(3):
        with pytest.raises(Unavailable, match="within 5 s"):
            model.run(["refund"])
    assert time.monotonic() - started < 4 and len(server.requests) == 1


def test_work_done_after_the_client_gave_up_is_not_done_again(server: EndpointServer) -> None:
    server.script(late(1.0))
    (found,) = embedder(server, timeout_seconds=0.3).run(["refund"])
    assert found.attempts >= 2 and len(set(server.keys)) == 1
    assert sum(server.work.values()) == 1


def test_a_server_that_never_answers_in_time_is_given_up_at_the_deadline(server: EndpointServer) -> None:
    server.always(late(0.5))
    started = time.monotonic()
    with pytest.raises(Unavailable, match=r"tiny gave no answer within 1 s"):
        embedder(server, timeout_seconds=0.2, deadline_seconds=1).run(["refund"])
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("trick", [Trick(headers={"Content-Length": "9999"}), Trick(drip_seconds=0.05)])
def test_an_answer_that_is_cut_short_or_drips_is_asked_for_again(server: EndpointServer, trick: Trick) -> None:
    server.script(trick)
    started = time.monotonic()
    assert embedder(server, timeout_seconds=0.5).run(["refund"])[0].attempts >= 2
    assert time.monotonic() - started < 5 and sum(server.work.values()) == 1


def test_an_answer_without_end_is_not_read_to_its_end(server: EndpointServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "ANSWER_BYTES_MAX", 1 << 20)
    server.script(garbage(b" " * (4 << 20)))
    with pytest.raises(DataFault, match="more than 1 MB"):
        embedder(server).run(["refund"])


def test_one_bad_text_costs_the_others_nothing_when_they_are_asked_alone(server: EndpointServer) -> None:
    server.when(lambda request: "poison" in str(request.content["input"]), garbage())
    model = embedder(server)
    with pytest.raises(DataFault):
        model.run(["good", "poison"])
    assert model.run(["good"])[0].attempts == 1


def bad_vector(values: Any) -> Trick:
    return changed(lambda good: {**good, "data": [{"index": 0, "embedding": values}]})


@pytest.mark.parametrize(
    "trick",
    [
        garbage(),
        garbage(b""),
        garbage(b"[]"),
        garbage(b"[" * 100_000),
        Trick(body=b"not gzip", headers={"Content-Encoding": "gzip"}),
        garbage(b'{"data": [{"index": 0, "embedding": [NaN, 1, 1, 1, 1, 1, 1, 1]}]}'),
        garbage(b'{"data": [{"index": 0, "embedding": [1e999, 1, 1, 1, 1, 1, 1, 1]}]}'),
        bad_vector([1.0] * 7),
        bad_vector([]),
        bad_vector([0.0] * 8),
        bad_vector(["x"] * 8),
        bad_vector(None),
        bad_vector([[1.0]] * 8),
        changed(lambda good: {**good, "data": good["data"] * 2}),
        changed(lambda good: {**good, "data": [{**good["data"][0], "index": 5}]}),
        changed(lambda good: {"usage": good["usage"]}),
    ],
)
def test_garbage_is_refused_as_bad_output_and_not_asked_for_again(server: EndpointServer, trick: Trick) -> None:
    server.script(trick)
    with pytest.raises(DataFault) as caught:
        embedder(server).run(["refund"])
    assert caught.value.reason == "BAD_OUTPUT" and len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "sentence"), [(401, "key_env"), (403, "right"), (404, "url and model"), (402, "credit"), (301, "url")]
)
def test_what_is_set_up_wrongly_is_said_at_once(server: EndpointServer, status: int, sentence: str) -> None:
    server.script(fail(status))
    with pytest.raises(Unavailable, match=sentence):
        embedder(server).run(["refund"])
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_what_a_service_refuses_is_the_inputs_fault(server: EndpointServer, status: int) -> None:
    server.script(fail(status, "too many tokens"))
    with pytest.raises(DataFault, match="too many tokens") as caught:
        embedder(server).run(["refund"])
    assert caught.value.reason == "UNSUPPORTED" and len(server.requests) == 1


def test_an_endpoint_that_went_away_is_left_alone_and_found_when_it_is_back(server: EndpointServer) -> None:
    now = 0.0
    model = embedder(server, replace(QUICK, clock=lambda: now), breaker_failures=4, breaker_seconds=1)
    server.always(fail(500))
    for _ in range(20):
        with pytest.raises(Unavailable, match="4 times in a row"):
            model.run(["refund"])
    assert len(server.requests) == 4
    now += 1.1
    with pytest.raises(Unavailable, match="5 times in a row"):
        model.run(["refund"])
    assert len(server.requests) == 5  # half open: one may try
    server.leave()
    now += 1.1
    with pytest.raises(Unavailable, match="6 times in a row"):
        model.run(["refund"])
    server.always()
    server.come_back()
    now += 1.1
    assert model.run(["refund"])[0].attempts == 1
    server.script(*[fail(500)] * 3)
    assert model.run(["closed again"])[0].attempts == 4


def test_no_more_calls_at_a_time_and_no_faster_than_allowed(server: EndpointServer) -> None:
    server.always(late(0.05))
    model = embedder(server, concurrency=2)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: model.run([f"text {number}"]), range(12)))
    assert server.busiest == 2
    server.always()
    before = len(server.requests)
    paced = embedder(server, requests_per_second=10, concurrency=8)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: paced.run([f"paced {number}"]), range(8)))
    times = sorted(request.at for request in server.requests[before:])
    assert times[-1] - times[0] >= 0.5  # seven gaps of a tenth, and what a busy machine may add before the first


class Clockwork:
    """Where sleeping is what makes time pass."""

    def __init__(self, chance: float = 1.0) -> None:
        self.time = 0.0
        self.slept: list[float] = []
        self.timing = TimeAndChance(lambda: self.time, lambda: datetime.now(UTC), self.sleep, lambda: chance)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


def failing(_: float) -> str:
    raise TryAgain("500")


def test_waits_double_up_to_half_a_minute_and_end_at_the_deadline() -> None:
    clockwork = Clockwork()
    policy = CallPolicy("m", CallLimits(deadline_seconds=100, breaker_failures=1000), clockwork.timing)
    with pytest.raises(Unavailable, match="500 at try 9"):
        policy.call(failing)
    assert clockwork.slept == [0.5, 1, 2, 4, 8, 16, 30, 30] and clockwork.time <= 100


def test_a_try_never_gets_more_time_than_is_left() -> None:
    clockwork = Clockwork()
    policy = CallPolicy(
        "m", CallLimits(deadline_seconds=100, timeout_seconds=60, breaker_failures=1000), clockwork.timing
    )
    given: list[float] = []

    def slow(seconds: float) -> str:
        given.append(seconds)
        clockwork.time += seconds
        raise TryAgain("timeout")

    with pytest.raises(Unavailable):
        policy.call(slow)
    assert given == [60, 39.5] and clockwork.time == 100


def half_open() -> CallPolicy:
    """It failed, and its time of rest is over: the next call may try."""
    clockwork = Clockwork()
    policy = CallPolicy("m", CallLimits(breaker_failures=1, breaker_seconds=30), clockwork.timing)
    with pytest.raises(Unavailable):
        policy.call(failing)
    clockwork.time += 31
    return policy


def test_an_open_circuit_lets_one_of_many_threads_try() -> None:
    policy = half_open()
    entered, leave = threading.Event(), threading.Event()

    def waiting(_: float) -> str:
        entered.set()
        assert leave.wait(10)
        return "back"

    with ThreadPoolExecutor(2) as pool:
        trying = pool.submit(policy.call, waiting)
        assert entered.wait(10)
        other = pool.submit(policy.call, lambda _: "after it")
        assert not other.done()  # it waits for what becomes of the first
        leave.set()
        assert trying.result() == ("back", 1)
        assert other.result() == ("after it", 1)
    assert policy.call(lambda _: "closed") == ("closed", 1)


def test_who_waited_for_a_try_that_failed_is_refused_without_a_call() -> None:
    policy = half_open()
    entered, leave = threading.Event(), threading.Event()

    def failing_late(seconds: float) -> str:
        entered.set()
        assert leave.wait(10)
        return failing(seconds)

    with ThreadPoolExecutor(2) as pool:
        trying = pool.submit(policy.call, failing_late)
        assert entered.wait(10)
        other = pool.submit(policy.call, lambda _: "never")
        leave.set()
        for call in (trying, other):
            with pytest.raises(Unavailable, match="left alone"):
                call.result()


def test_retry_after_is_read_in_both_its_forms() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert retry_after_seconds("2.5", now) == 2.5 and retry_after_seconds(None, now) is None
    assert retry_after_seconds("Thu, 01 Jan 2026 00:01:30 GMT", now) == 90
    assert retry_after_seconds("Thu, 01 Jan 2025 00:00:00 GMT", now) == 0
    assert retry_after_seconds("soon", now) is None and retry_after_seconds("nan", now) is None


def test_the_server_runs_as_a_program_too() -> None:
    place = Path(__file__).parent / "endpoint_server.py"
    with subprocess.Popen([sys.executable, str(place)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        told = {"kind": "openai-embeddings", "url": url, "model": "tiny", "dimension": 8}
        model = load_model("m", {"m": told})
        model.load()
        assert model.run(["refund"])[0].attempts == 1
        process.terminate()
