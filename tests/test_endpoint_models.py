"""Adapters of endpoints against a real server on loopback: what is sent, what comes back, and what is refused."""

import io
import math
import tempfile
import time
import tracemalloc
import wave
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from endpoint_models import *  # noqa: F403
from endpoint_models import QUICK, embedder, made
from endpoint_server import EndpointServer, Trick, changed, fail, garbage, late

from headwater.errors import DataFault, InvalidRequest, Unavailable
from headwater.flow.models.endpoint_speech import write_wav
from headwater.flow.models.endpoint_vectors import share_out
from headwater.flow.models.pieces import pieces
from headwater.flow.models.port import SAMPLE_RATE, Sound
from headwater.flow.models.registry import load_model

TONE = (np.sin(np.arange(SAMPLE_RATE * 2) / 9) * 9000).astype(np.int16)


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
    now, limits = 0.0, {"piece_seconds": 40, "breaker_failures": 2, "breaker_seconds": 1}
    model = made("openai-transcription", server, replace(QUICK, clock=lambda: now), **limits)
    server.script(Trick(), Trick(), fail(500), fail(500))
    with pytest.raises(Unavailable):
        model.run([Sound(iter([sound]))])
    now += 1.1
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
