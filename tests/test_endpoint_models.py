"""What models behind an endpoint promise, counted at a real server on loopback: asked again politely, paid once."""

import io
import math
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from endpoint_server import EndpointServer, Trick, changed, fail, garbage, late, throttle

from headwater.errors import DataFault, InvalidRequest, Unavailable
from headwater.flow.models import endpoint
from headwater.flow.models.endpoint import retry_after_seconds
from headwater.flow.models.endpoint_speech import write_wav
from headwater.flow.models.endpoint_vectors import share_out
from headwater.flow.models.manners import Limits, Manners, TryAgain, World
from headwater.flow.models.pieces import pieces
from headwater.flow.models.port import SAMPLE_RATE, Sound
from headwater.flow.models.registry import load_model

QUICK = World(chance=lambda: 0.02)  # waits of 10 ms, then 20 ms: the tests need not see how long they get
TONE = (np.sin(np.arange(SAMPLE_RATE * 2) / 9) * 9000).astype(np.int16)


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    with EndpointServer() as found:
        yield found


def embedder(server: EndpointServer, world: World = QUICK, **options: Any) -> Any:
    return made("openai-embeddings", server, world, **{"dimension": 8, **options})


def made(kind: str, server: EndpointServer, world: World = QUICK, **options: Any) -> Any:
    model: Any = load_model("m", {"m": {"kind": kind, "url": server.url, "model": "tiny", **options}})
    model.load(world)
    return model


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
    server.script(throttle(2))
    model = embedder(server)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(model.run, ["a"])
        while not server.requests:
            time.sleep(0.01)
        time.sleep(0.5)
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
    model = embedder(server, breaker_failures=4, breaker_seconds=1)
    server.always(fail(500))
    for _ in range(20):
        with pytest.raises(Unavailable, match="4 times in a row"):
            model.run(["refund"])
    assert len(server.requests) == 4
    time.sleep(1.1)
    with pytest.raises(Unavailable, match="5 times in a row"):
        model.run(["refund"])
    assert len(server.requests) == 5  # half open: one may try
    server.leave()
    time.sleep(1.1)
    with pytest.raises(Unavailable, match="6 times in a row"):
        model.run(["refund"])
    server.always()
    server.come_back()
    time.sleep(1.1)
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


def test_texts_go_in_batches_and_come_back_in_order_with_their_share_of_tokens(server: EndpointServer) -> None:
    server.always(changed(lambda good: {**good, "data": good["data"][::-1]}))
    texts = [f"text {'word ' * number}" for number in range(10)]
    found = embedder(server, batch_items=4).run(texts)
    assert [len(request.content["input"]) for request in server.requests] == [4, 4, 2]
    for text, one in zip(texts, found, strict=True):
        assert np.argmax(one.vector) == np.argmax(server.vector(text)) and one.vector.dtype == np.float32
        assert math.isclose(float(np.linalg.norm(one.vector)), 1, abs_tol=1e-5)
    assert sum(one.tokens for one in found) == sum(len(text.split()) for text in texts)
    assert found[0].tokens < found[3].tokens
    assert share_out(10, [1, 1, 1]) == [3, 3, 4] and share_out(5, [0, 0]) == [0, 0]


def test_a_shortened_vector_is_asked_for_by_its_length(server: EndpointServer) -> None:
    embedder(server, shorten=True).run(["refund"])
    embedder(server).run(["refund"])
    assert [request.content.get("dimensions") for request in server.requests] == [8, None]


def test_speech_comes_back_in_segments_with_times_and_confidence(server: EndpointServer) -> None:
    model = made("openai-transcription", server, language="en", prompt="Headwater")
    (said,) = model.run([Sound(iter(np.array_split(TONE, 5)))])
    loudness = int(np.abs(TONE.astype(np.int64)).mean())
    assert said.text == f"a call of loudness {loudness} and goodbye." and said.language == "en"
    assert [(part.locator.start_ms, part.locator.end_ms) for part in said.segments] == [(0, 1000), (1000, 2000)]
    assert math.isclose(said.confidence, math.exp(-0.5)) and said.attempts == 1
    (request,) = server.requests
    assert {name: request.content[name] for name in ("model", "language", "prompt", "response_format")} == {
        "model": "tiny", "language": "en", "prompt": "Headwater", "response_format": "verbose_json",
    }  # fmt: skip
    with wave.open(io.BytesIO(request.content["file"])) as wav:
        assert wav.getparams()[:4] == (1, 2, SAMPLE_RATE, len(TONE))


def test_sound_is_sent_again_whole_and_however_it_was_cut_it_is_the_same_request(server: EndpointServer) -> None:
    server.script(fail(500), fail(500))
    model = made("openai-transcription", server)
    first = model.run([Sound(iter([TONE]))])[0]
    again = model.run([Sound(iter(np.array_split(TONE, 9)))])[0]
    assert first.text == again.text and len(set(server.keys)) == 1
    assert len({request.content["file"] for request in server.requests}) == 1


def test_an_hour_of_sound_goes_in_pieces_that_fit_together(server: EndpointServer) -> None:
    model = made("openai-transcription", server, piece_seconds=40)
    (said,) = model.run([Sound(iter([TONE] * 50))])
    times = [(part.locator.start_ms, part.locator.end_ms) for part in said.segments]
    assert said.attempts == len(server.requests) == 3 and len(times) == 6
    assert times[0][0] == 0 and times[-1][1] == 100_000
    assert all(abs(later[0] - earlier[1]) <= 1 for earlier, later in pairwise(times))


def test_pieces_that_were_heard_are_not_paid_again_when_a_later_one_fails(server: EndpointServer) -> None:
    sound = np.random.default_rng(1).integers(-9000, 9000, 90 * SAMPLE_RATE).astype(np.int16)
    model = made("openai-transcription", server, piece_seconds=40, breaker_failures=2, breaker_seconds=0.1)
    server.script(Trick(), Trick(), fail(500), fail(500))
    with pytest.raises(Unavailable):
        model.run([Sound(iter([sound]))])
    time.sleep(0.2)
    (said,) = model.run([Sound(iter([sound]))])
    assert said.segments[-1].locator.end_ms == 90_000 and sum(server.work.values()) == 3
    assert len(server.requests) == 5
    model.run([Sound(iter([sound]))])  # done is done: the lake remembers it, not the model
    assert len(server.requests) == 8


def test_all_pieces_of_a_sound_have_one_deadline(server: EndpointServer) -> None:
    server.always(late(0.4))
    model = made("openai-transcription", server, piece_seconds=30, deadline_seconds=1)
    started = time.monotonic()
    with pytest.raises(Unavailable, match="within 1 s"):
        model.run([Sound(iter([TONE] * 75))])
    assert time.monotonic() - started < 2.2


def test_an_hour_waits_on_disk_while_it_is_sent() -> None:
    minute = np.zeros(60 * SAMPLE_RATE, np.int16)
    tracemalloc.start()
    with tempfile.SpooledTemporaryFile(1 << 20) as file:
        _, blocks = next(pieces((minute.copy() for _ in range(60)), 7200))
        digest, count = write_wav(file, blocks)
        assert file.seek(0, 2) == 44 + 2 * count and count == 3600 * SAMPLE_RATE and len(digest) == 32
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("sizes", [[SAMPLE_RATE] * 100, [SAMPLE_RATE * 100], [0, 7, SAMPLE_RATE * 45, 1] * 2])
def test_pieces_lose_nothing_and_are_cut_where_it_is_quiet(sizes: list[int]) -> None:
    sound = np.random.default_rng(5).integers(-999, 999, sum(sizes)).astype(np.int16)
    sound[SAMPLE_RATE * 35 : SAMPLE_RATE * 36] = 0
    blocks = np.split(sound, np.cumsum(sizes)[:-1])
    heard = [(start, np.concatenate(list(piece))) for start, piece in pieces(iter(blocks), 40)]
    assert np.array_equal(np.concatenate([piece for _, piece in heard]), sound)
    assert all(len(piece) <= 40 * SAMPLE_RATE for _, piece in heard)
    assert 35_000 <= heard[1][0] <= 36_000


def test_a_service_that_gives_only_text_is_asked_for_that_from_then_on(server: EndpointServer) -> None:
    server.script(fail(400, "response_format 'verbose_json' is not compatible with this model"))
    model = made("openai-transcription", server)
    said, again = model.run([Sound(iter([TONE])), Sound(iter([TONE // 2]))])
    assert [part.locator.end_ms for part in said.segments] == [2000] and said.confidence is None
    assert said.attempts == 2 and again.attempts == 1
    assert [request.content["response_format"] for request in server.requests] == ["verbose_json", "json", "json"]


@pytest.mark.parametrize(
    "trick",
    [
        garbage(),
        garbage(b"{}"),
        garbage(b'{"text": 5}'),
        garbage(b'{"segments": 5}'),
        garbage(b'{"segments": [{"text": "x", "start": 5, "end": 1}]}'),
        garbage(b'{"segments": [{"text": "x", "start": "a", "end": 1}]}'),
        garbage(b'{"text": "' + b"so " * 9000 + b'"}'),
    ],
)
def test_a_transcript_that_cannot_be_is_refused(server: EndpointServer, trick: Trick) -> None:
    server.script(trick)
    with pytest.raises(DataFault) as caught:
        made("openai-transcription", server).run([Sound(iter([TONE]))])
    assert caught.value.reason == "BAD_OUTPUT"


def test_silence_may_have_no_words(server: EndpointServer) -> None:
    server.script(garbage(b'{"text": "", "segments": []}'))
    (said,) = made("openai-transcription", server).run([Sound(iter([TONE * 0]))])
    assert said.text == "" and said.segments == () and said.language is None and said.confidence is None


@pytest.mark.parametrize("encoding", ["png", "jpeg"])
def test_a_picture_is_described_by_what_the_server_sees(server: EndpointServer, encoding: str) -> None:
    picture = np.zeros((300, 400, 3), np.uint8)
    picture[:] = (200, 100, 50)
    model = made("openai-caption", server, prompt="What is it?", side_pixels=100, encoding=encoding, max_tokens=99)
    (said,) = model.run([picture])
    assert said.text.startswith("a picture of colour [") and said.tokens == 42 and said.attempts == 1
    seen = [int(value) for value in said.text.partition("[")[2].rstrip("]").split(",")]
    assert np.allclose(seen, (200, 100, 50), atol=3)
    (request,) = server.requests
    question = request.content["messages"][0]["content"]
    assert question[0]["text"] == "What is it?" and f"data:image/{encoding}" in question[1]["image_url"]["url"]
    assert request.content["max_tokens"] == 99 and "temperature" not in request.content


def choice(text: Any, finish: str = "stop") -> Trick:
    return changed(lambda _: {"choices": [{"message": {"content": text}, "finish_reason": finish}]})


@pytest.mark.parametrize(
    "trick",
    [
        garbage(),
        garbage(b'{"choices": []}'),
        choice(""),
        choice(None),
        choice("half a", "length"),
        choice("x" * 60_000),
    ],
)
def test_a_caption_that_cannot_be_is_refused(server: EndpointServer, trick: Trick) -> None:
    server.script(trick)
    with pytest.raises(DataFault) as caught:
        made("openai-caption", server).run([np.zeros((8, 8, 3), np.uint8)])
    assert caught.value.reason == "BAD_OUTPUT"


def test_the_key_of_the_service_comes_from_the_environment_and_is_shown_nowhere(
    server: EndpointServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_KEY", "secret-123")
    model = embedder(server, key_env="SERVICE_KEY")
    server.script(fail(401, "Incorrect key provided: secret-123"))
    with pytest.raises(Unavailable) as caught:
        model.run(["refund"])
    assert server.requests[0].authorization == "Bearer secret-123"
    assert "secret-123" not in str(caught.value) + repr(model) + str(model.card)
    monkeypatch.delenv("SERVICE_KEY")
    with pytest.raises(Unavailable, match="SERVICE_KEY is not set"):
        embedder(server, key_env="SERVICE_KEY")
    with pytest.raises(InvalidRequest) as refused:
        embedder(server, key_env="sk-abc")
    assert "sk-abc" not in str(refused.value)


def test_where_it_stands_and_how_it_is_called_make_no_other_model() -> None:
    def card(**options: Any) -> Any:
        told = {"kind": "openai-embeddings", "url": "http://127.0.0.1:1/v1", "model": "tiny", "dimension": 8, **options}
        return load_model("m", {"m": told}).card

    first = card()
    assert first.name == "openai-embeddings/tiny" and first.dimension == 8 and first.label.endswith(" 1")
    same = card(url="https://other.example/v1", key_env="KEY", concurrency=9, deadline_seconds=7, timeout_seconds=1)
    assert same.fingerprint == first.fingerprint and (same.concurrency, same.deadline_seconds) == (9, 7)
    others = [card(dimension=9), card(model="small"), card(version="2"), card(shorten=True), card(price=0.1)]
    assert len({first.fingerprint, *(other.fingerprint for other in others)}) == 6


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"url": "ftp://x"}, "http://"),
        ({"url": "http://user:pass@host/v1"}, "key_env"),
        ({"price_unit": "kilo"}, "audio_second"),
        ({"concurrency": 0}, "concurrency"),
        ({"deadline_seconds": "long"}, "deadline_seconds"),
        ({"dimension": 0}, "dimension"),
        ({"speed": 1}, "speed"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options: dict[str, Any], sentence: str) -> None:
    told = {"kind": "openai-embeddings", "url": "http://127.0.0.1:1/v1", "model": "tiny", "dimension": 8, **options}
    with pytest.raises(InvalidRequest, match=sentence):
        load_model("m", {"m": told})


class Clockwork:
    """A world where sleeping is what makes time pass."""

    def __init__(self, chance: float = 1.0) -> None:
        self.time = 0.0
        self.slept: list[float] = []
        self.world = World(lambda: self.time, lambda: datetime.now(UTC), self.sleep, lambda: chance)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


def failing(_: float) -> str:
    raise TryAgain("500")


def test_waits_double_up_to_half_a_minute_and_end_at_the_deadline() -> None:
    clockwork = Clockwork()
    manners = Manners("m", Limits(deadline_seconds=100, breaker_failures=1000), clockwork.world)
    with pytest.raises(Unavailable, match="500 at try 9"):
        manners.call(failing)
    assert clockwork.slept == [0.5, 1, 2, 4, 8, 16, 30, 30] and clockwork.time <= 100


def test_a_try_never_gets_more_time_than_is_left() -> None:
    clockwork = Clockwork()
    manners = Manners("m", Limits(deadline_seconds=100, timeout_seconds=60, breaker_failures=1000), clockwork.world)
    given: list[float] = []

    def slow(seconds: float) -> str:
        given.append(seconds)
        clockwork.time += seconds
        raise TryAgain("timeout")

    with pytest.raises(Unavailable):
        manners.call(slow)
    assert given == [60, 39.5] and clockwork.time == 100


def half_open() -> Manners:
    """It failed, and its time of rest is over: the next call may try."""
    clockwork = Clockwork()
    manners = Manners("m", Limits(breaker_failures=1, breaker_seconds=30), clockwork.world)
    with pytest.raises(Unavailable):
        manners.call(failing)
    clockwork.time += 31
    return manners


def test_an_open_circuit_lets_one_of_many_threads_try() -> None:
    manners = half_open()
    entered, leave = threading.Event(), threading.Event()

    def waiting(_: float) -> str:
        entered.set()
        assert leave.wait(10)
        return "back"

    with ThreadPoolExecutor(2) as pool:
        trying = pool.submit(manners.call, waiting)
        assert entered.wait(10)
        other = pool.submit(manners.call, lambda _: "after it")
        assert not other.done()  # it waits for what becomes of the first
        leave.set()
        assert trying.result() == ("back", 1)
        assert other.result() == ("after it", 1)
    assert manners.call(lambda _: "closed") == ("closed", 1)


def test_who_waited_for_a_try_that_failed_is_refused_without_a_call() -> None:
    manners = half_open()
    entered, leave = threading.Event(), threading.Event()

    def failing_late(seconds: float) -> str:
        entered.set()
        assert leave.wait(10)
        return failing(seconds)

    with ThreadPoolExecutor(2) as pool:
        trying = pool.submit(manners.call, failing_late)
        assert entered.wait(10)
        other = pool.submit(manners.call, lambda _: "never")
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
