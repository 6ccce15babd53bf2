"""A service that means harm, on loopback: one that drips, one that packs gigabytes into bytes, one that says our key
back to us. None of them takes more of our time or memory than we gave it, and none gets the key into a text of ours."""

import base64
import gzip
import json
import socket
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import count
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from endpoint_models import *  # noqa: F403
from endpoint_models import embedder, made
from endpoint_server import EndpointServer, Request, Trick, fail, garbage, in_pieces

from headwater.errors import DataFault, HeadwaterError, Unavailable
from headwater.flow.models.registry import load_model

KEY = "sk-live-Zx81+qPl/4mTr=7Vb2Nw9KdYc0"
SECONDS = 2.0


def endless_header(_: Request) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    for number in count():
        yield b"X-%d: y\r\n" % number


def slow_status(_: Request) -> Iterator[bytes]:
    for letter in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" * 1000:
        yield bytes([letter])


def patience_please(_: Request) -> Iterator[bytes]:
    while True:
        yield b"HTTP/1.1 100 Continue\r\n\r\n"


def slow_body(_: Request) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    while True:
        yield b" "


def slow_gzip(_: Request) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 100000\r\n\r\n"
    yield gzip.compress(b"")[:10]
    while True:
        yield b"\x00\x00\x00\xff\xff"  # an empty block: unpacked, it is nothing


@pytest.mark.parametrize("drip", [endless_header, slow_status, patience_please, slow_body, slow_gzip])
def test_whatever_drips_is_given_up_at_the_deadline(server: EndpointServer, drip: Callable[..., Any]) -> None:
    server.always(in_pieces(drip, 0.05))
    model = embedder(server, timeout_seconds=SECONDS / 4, deadline_seconds=SECONDS, breaker_failures=1000)
    started = time.monotonic()
    with pytest.raises(Unavailable, match="gave no answer within 2 s"):
        model.run(["refund"])
    assert time.monotonic() - started < SECONDS + 2
    assert len(server.requests) >= 2


def test_a_handshake_that_drips_is_given_up_at_the_deadline() -> None:
    """A server that is not even one: it takes the connection, and says a byte now and then."""
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        with suppress(OSError):  # closed at the end
            while not ended.is_set():
                connection, _ = listener.accept()
                threading.Thread(target=say_little, args=(connection,), daemon=True).start()

    def say_little(connection: socket.socket) -> None:
        with closing(connection), suppress(OSError):  # it is given up
            for byte in b"\x16\x03\x03\x40\x00" + bytes(10_000):
                if ended.wait(0.05):
                    return
                connection.sendall(bytes([byte]))

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=drip, args=(listener,), daemon=True).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1"
        options = {"kind": "openai-embeddings", "url": url, "model": "tiny", "dimension": 8}
        model = load_model("m", {"m": {**options, "timeout_seconds": 0.5, "deadline_seconds": SECONDS}})
        model.load()
        started = time.monotonic()
        with pytest.raises(Unavailable):
            model.run(["refund"])
        assert time.monotonic() - started < SECONDS + 2
        ended.set()


def packed(content: bytes, encoding: str) -> Trick:
    return Trick(body=content, headers={"Content-Encoding": encoding})


ZEROS = bytes(64 << 20)
BOMBS = {
    "gzip": packed(gzip.compress(ZEROS), "gzip"),
    "gzip of gzip": packed(gzip.compress(gzip.compress(ZEROS)), "gzip, gzip"),
    "gzip of gzip, said once": packed(gzip.compress(gzip.compress(ZEROS)), "gzip"),
    "many members": packed(gzip.compress(bytes(1 << 20)) * 64, "gzip"),
    "deflate": packed(zlib.compress(ZEROS), "deflate"),
    "brotli": packed(b"\x00" * 300, "br"),
    "zstandard": packed(b"\x28\xb5\x2f\xfd" + bytes(300), "zstd"),
    "not packed": garbage(bytes(8 << 20)),
}


@pytest.mark.parametrize("name", list(BOMBS))
def test_an_answer_is_never_unpacked_beyond_what_was_asked_for(server: EndpointServer, name: str) -> None:
    server.always(BOMBS[name])
    model = embedder(server)
    tracemalloc.start()
    try:
        with pytest.raises(DataFault) as caught:
            model.run(["refund"])
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.reason == "BAD_OUTPUT" and len(server.requests) == 1


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_an_answer_that_is_packed_well_is_read(
    server: EndpointServer, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    good = {"data": [{"index": 0, "embedding": [1.0] * 8}], "usage": {"total_tokens": 3}}
    server.script(packed(pack(json.dumps(good).encode()), encoding))
    (found,) = embedder(server).run(["refund"])
    assert found.tokens == 3
    server.script(packed(pack(json.dumps(good).encode())[:-9], encoding))
    assert embedder(server).run(["refund"])[0].attempts == 2  # it was cut short, and asked for again


def in_base64(key: str) -> str:
    return base64.b64encode(f"Authorization: Bearer {key}!".encode()).decode()


def escaped(key: str) -> str:
    return "".join(f"\\u{ord(letter):04x}" for letter in key)


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda key: key,
    "in an address": lambda key: quote(key, safe=""),
    "in capitals": str.upper,
    "with every letter escaped": escaped,
    "in base64": in_base64,
    "in hex": lambda key: key.encode().hex(),
    "cut by the service": lambda key: key[:20],
    "the end of it": lambda key: key[12:],
}


@pytest.mark.parametrize("spelling", list(SPELLINGS))
@pytest.mark.parametrize("before", [0, 150, 180, 195, 199])
@pytest.mark.parametrize("status", [400, 401, 500])
def test_a_key_that_a_service_says_back_is_masked_before_the_text_is_cut(
    server: EndpointServer, monkeypatch: pytest.MonkeyPatch, spelling: str, before: int, status: int
) -> None:
    monkeypatch.setenv("SERVICE_KEY", KEY)
    said = SPELLINGS[spelling](KEY)
    secret = said.removeprefix(in_base64("")[:-4])  # what stands before the key is known to everybody
    server.always(Trick(status, f"{'x' * before} {said} is wrong".encode(), works=False))
    model = embedder(server, key_env="SERVICE_KEY", breaker_failures=1)
    assert_silent(model, secret)


def assert_silent(model: Any, said: str) -> None:
    with pytest.raises(HeadwaterError) as caught:
        model.run(["refund"])
    told = f"{caught.value}"
    for spelled in (said, KEY):
        parts = [spelled[start : start + 12] for start in range(len(spelled) - 11)]
        assert not [part for part in parts if part.lower() in told.lower()], told
    assert caught.value.__cause__ is None  # nor does a traceback tell it


def status_line(request: Request) -> Iterator[bytes]:
    yield f"{request.authorization} is no status\r\n\r\n".encode()


def odd_header(request: Request) -> Iterator[bytes]:
    yield f"HTTP/1.1 200 OK\r\n{request.authorization}\r\n\r\n".encode()


def reason_phrase(request: Request) -> Iterator[bytes]:
    yield f"HTTP/1.1 500 {request.authorization}\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.mark.parametrize("pieces", [status_line, odd_header, reason_phrase])
def test_a_key_in_the_status_line_or_in_a_header_is_masked(
    server: EndpointServer, monkeypatch: pytest.MonkeyPatch, pieces: Callable[..., Any]
) -> None:
    monkeypatch.setenv("SERVICE_KEY", KEY)
    server.always(in_pieces(pieces))
    assert_silent(embedder(server, key_env="SERVICE_KEY", breaker_failures=1), KEY)


def test_a_key_in_what_a_service_answers_well_does_not_become_a_row(
    server: EndpointServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_KEY", KEY)
    message = {"role": "assistant", "content": f"a picture of Bearer {KEY}, and of {in_base64(KEY)}"}
    answer = {"choices": [{"message": message, "finish_reason": KEY}]}
    server.always(garbage(json.dumps(answer).encode()))
    (said,) = made("openai-caption", server, key_env="SERVICE_KEY").run([np.zeros((8, 8, 3), np.uint8)])
    assert said.text.startswith("a picture of Bearer ***") and "live" not in said.text
    message["content"] = ""
    server.always(garbage(json.dumps(answer).encode()))
    with pytest.raises(DataFault) as caught:
        made("openai-caption", server, key_env="SERVICE_KEY").run([np.zeros((8, 8, 3), np.uint8)])
    assert KEY not in str(caught.value)


def test_a_key_in_the_address_is_masked_too(server: EndpointServer) -> None:
    url = f"{server.url}?api-key={quote(KEY, safe='')}"
    model = load_model("m", {"m": {"kind": "openai-embeddings", "url": url, "model": "tiny", "dimension": 8}})
    model.load()
    server.always(fail(401, f"no such key: {KEY}"))
    assert_silent(model, KEY)
