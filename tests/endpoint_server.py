"""A real HTTP server on loopback that speaks the OpenAI dialect and misbehaves as it is told.

    with EndpointServer(dimension=8) as server:
        server.script(fail(500), fail(500), throttle(1))    # one for each coming request, in order
        server.always(fail(503))                            # every request, until server.always()
        server.when(lambda request: "x" in str(request.content), garbage())    # each request of that kind, first of all
        model = load_model("m", {"m": {"kind": "openai-embeddings", "url": server.url, ...}})
        server.requests, server.work, server.keys           # what was seen, and what was done once

Without a script it answers well: the words depend only on what was sent. It keeps the Idempotency-Key: work with a key
that it knows is not done again. `server.leave()` closes the port and `server.come_back()` opens the same one again.
As a program it serves until it is ended, and its state can be asked for at /seen.
"""

import base64
import hashlib
import io
import json
import sys
import threading
import time
import wave
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Trick:
    """How one request is answered. `slow_seconds` passes before the answer, `drip_seconds` before each of its bytes;
    `works` says whether the work is done, which is before all that."""

    status: int = 200
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    slow_seconds: float = 0.0
    drip_seconds: float = 0.0
    works: bool = True
    hangs_up: bool = False
    change: Callable[[dict[str, Any]], Any] | None = None
    raw: Callable[["Request"], Iterator[bytes]] | None = None


def in_pieces(pieces: Callable[["Request"], Iterator[bytes]], seconds: float = 0.0) -> Trick:
    """What goes over the wire, from the status line on, with so many seconds before each piece."""
    return Trick(raw=pieces, drip_seconds=seconds, works=False)


def fail(status: int, message: str = "out of order") -> Trick:
    return Trick(status, json.dumps({"error": {"message": message}}).encode(), works=False)


def hang_up() -> Trick:
    """The connection ends without a word, as when a server dies of what it was sent."""
    return Trick(hangs_up=True, works=False)


def throttle(retry_after: float | str) -> Trick:
    return Trick(429, b'{"error": {"message": "slow down"}}', {"Retry-After": str(retry_after)}, works=False)


def garbage(body: bytes = b"<html>bad gateway</html>") -> Trick:
    return Trick(body=body)


def late(seconds: float) -> Trick:
    """The work is done at once, the answer comes after so long."""
    return Trick(slow_seconds=seconds)


def changed(change: Callable[[dict[str, Any]], Any]) -> Trick:
    """A good answer with one thing wrong in it."""
    return Trick(change=change)


@dataclass(frozen=True)
class Request:
    path: str
    key: str
    authorization: str
    at: float
    content: dict[str, Any]


class EndpointServer:
    def __init__(self, dimension: int = 8, port: int = 0) -> None:
        self.dimension = dimension
        self.requests: list[Request] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self.work: Counter[str] = Counter()
        self.busiest = 0
        self._busy = 0
        self._script: deque[Trick] = deque()
        self._always: Trick | None = None
        self._rules: list[tuple[Callable[[Request], bool], Trick]] = []
        self._lock = threading.Lock()
        self._port = port
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> "EndpointServer":
        self.come_back()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def keys(self) -> list[str]:
        return [request.key for request in self.requests]

    def script(self, *tricks: Trick) -> None:
        self._script.extend(tricks)

    def always(self, trick: Trick | None = None) -> None:
        self._always = trick

    def when(self, fits: Callable[[Request], bool], trick: Trick) -> None:
        self._rules.append((fits, trick))

    def forget_rules(self) -> None:
        self._rules.clear()

    def come_back(self) -> None:
        self._server = _Server(("127.0.0.1", self._port), _handler(self))
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def leave(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.close_all()
            self._server = None

    def answer(self, request: Request) -> tuple[Trick, bytes]:
        with self._lock:
            self.requests.append(request)
            trick = self._choose(request)
            self._busy += 1
            self.busiest = max(self.busiest, self._busy)
        try:
            good = self._work_once(request) if trick.works else {}
            time.sleep(trick.slow_seconds)
        finally:
            with self._lock:
                self._busy -= 1
        if trick.body is not None:
            return trick, trick.body
        found = trick.change(json.loads(json.dumps(good))) if trick.change else good
        return trick, json.dumps(found).encode()

    def _choose(self, request: Request) -> Trick:
        fitting = next((trick for fits, trick in self._rules if fits(request)), None)
        return fitting or self._always or (self._script.popleft() if self._script else Trick())

    def _work_once(self, request: Request) -> dict[str, Any]:
        with self._lock:
            if not request.key or request.key not in self.answers:
                self.work[request.key] += 1
                self.answers[request.key] = self._speak(request)
            return self.answers[request.key]

    def _speak(self, request: Request) -> dict[str, Any]:
        if request.path.endswith("/embeddings"):
            texts = request.content["input"]
            data = [{"index": at, "embedding": self.vector(text)} for at, text in enumerate(texts)]
            return {"data": data, "usage": {"total_tokens": sum(len(text.split()) for text in texts)}}
        if request.path.endswith("/chat/completions"):
            message = {"role": "assistant", "content": f"a picture of colour {_colour(request.content)}"}
            return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"total_tokens": 42}}
        return _hear(request.content)

    def vector(self, text: str) -> list[float]:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
        return [float(value) for value in np.random.default_rng(seed).normal(size=self.dimension)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def close_all(self) -> None:
        """Like a process that died: connections that are kept alive are gone too."""
        self.server_close()
        for connection in self._open:
            try:
                connection.shutdown(2)
            except OSError:
                continue

    def handle_error(self, *_: object) -> None:
        """A client that gave up is no news."""


def _handler(owner: EndpointServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            at = time.monotonic()
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            content = _form(self.headers.get("Content-Type", ""), body)
            key, authorization = self.headers.get("Idempotency-Key", ""), self.headers.get("Authorization", "")
            request = Request(self.path, key, authorization, at, content)
            trick, answer = owner.answer(request)
            if trick.raw is None:
                self._say(trick, answer)
                return
            self.close_connection = True
            for piece in trick.raw(request):
                time.sleep(trick.drip_seconds)
                self.wfile.write(piece)

        def do_GET(self) -> None:
            seen = {"requests": len(owner.requests), "keys": owner.keys, "work": sum(owner.work.values())}
            self._say(Trick(), json.dumps(seen).encode())

        def _say(self, trick: Trick, body: bytes) -> None:
            if trick.hangs_up:
                self.close_connection = True
                self.connection.shutdown(2)
                return
            self.send_response(trick.status)
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **trick.headers}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            for part in [body[at : at + 1] for at in range(len(body))] if trick.drip_seconds else [body]:
                time.sleep(trick.drip_seconds)
                self.wfile.write(part)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _form(content_type: str, body: bytes) -> dict[str, Any]:
    """JSON, or the fields of a form with its file."""
    if not content_type.startswith("multipart/"):
        found = json.loads(body)
        return found if isinstance(found, dict) else {}
    message = message_from_bytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    parts = [part for part in message.walk() if not part.is_multipart()]
    names = [str(part.get_param("name", header="content-disposition")) for part in parts]
    return {name: _value(part) for name, part in zip(names, parts, strict=True)}


def _value(part: Any) -> bytes | str:
    content = part.get_payload(decode=True)
    return content if part.get_filename() else content.decode()


def _hear(content: dict[str, Any]) -> dict[str, Any]:
    with wave.open(io.BytesIO(content["file"])) as wav:
        seconds = wav.getnframes() / wav.getframerate()
        samples = np.frombuffer(wav.readframes(wav.getnframes()), "<i2").astype(np.int64)
    text = f"a call of loudness {int(np.abs(samples).mean()) if len(samples) else 0}"
    if content.get("response_format") == "json":
        return {"text": text}
    half = {"avg_logprob": -0.5, "no_speech_prob": 0.01}
    segments = [
        {"id": 0, "start": 0.0, "end": seconds / 2, "text": f" {text}", **half},
        {"id": 1, "start": seconds / 2, "end": seconds, "text": " and goodbye.", **half},
    ]
    return {"text": f"{text} and goodbye.", "language": "english", "duration": seconds, "segments": segments}


def _colour(content: dict[str, Any]) -> list[int]:
    from PIL import Image

    url = content["messages"][0]["content"][1]["image_url"]["url"]
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition("base64,")[2]))).convert("RGB"))
    return [int(value) for value in picture.reshape(-1, 3).mean(axis=0)]


if __name__ == "__main__":
    with EndpointServer(*map(int, sys.argv[1:3])) as server:
        print(server.url, flush=True)
        threading.Event().wait()
