"""Servers that a test runs beside the stack, because they are set up as the stack's are not: with TLS, say."""

import http.client
import os
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from waiting import wait_until

from headwater.setting import Chosen
from headwater.settings import Settings
from headwater.stack import process
from headwater.stack.kafka import Kafka
from headwater.stack.part import Part, Site
from headwater.stack.process import Command
from headwater.stack.s3 import ACCESS_KEY, REGION, S3
from headwater.stack.state import State

_LOGIN = "org.apache.kafka.common.security"
EXTENSIONS = (
    "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n"
)


def site(part: type[Part], directory: Path) -> Site:
    """Ports and a key of its own; the directory must be one that outlives the part."""
    state = State()
    state.allot(part.ports, [part.name])
    return Site(directory, state.ports, state.keys)


@contextmanager
def running(part: Part) -> Iterator[Part]:
    """Started and ready; gone afterwards."""
    part.prepare(lambda _: None)
    part.initialise()
    log = part.site.directory / f"{part.name}.log"
    known = process.start(part.command(), part.directory, log)
    try:
        wait_until(lambda: part.is_ready() or not process.is_running(known), seconds=part.ready_seconds)
        assert process.is_running(known), process.tail(log, 0)
        yield part
    finally:
        process.stop(known, part.stop_signal, part.stop_seconds)


@dataclass(frozen=True)
class Identity:
    """A server's certificate and key, and the authority that signed it: files in PEM format."""

    authority: Path
    certificate: Path
    key: Path


def make_identity(directory: Path) -> Identity:
    """By an authority that nobody else knows; openssl comes with Postgres."""
    fresh = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-batch"]
    name = uuid.uuid4().hex[:8]
    authority = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"]
    _openssl(directory, "req -x509 -days 2 -keyout ca.key -out ca.pem", *fresh, "-subj", f"/CN=Test {name}", *authority)
    _openssl(directory, "req -new -keyout server.key -out server.csr", *fresh, "-subj", "/CN=localhost")
    (directory / "extensions").write_text(EXTENSIONS)
    signing = "x509 -req -days 2 -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile extensions"
    _openssl(directory, f"{signing} -out server.pem")
    return Identity(directory / "ca.pem", directory / "server.pem", directory / "server.key")


def _openssl(directory: Path, line: str, *more: str) -> None:
    subprocess.run(["openssl", *line.split(), *more], check=True, cwd=directory, capture_output=True)


class SecureS3(S3):
    """Over TLS only."""

    def __init__(self, site: Site, identity: Identity) -> None:
        super().__init__(site)
        self.identity = identity

    @property
    def url(self) -> str:
        return f"https://{self.address}"

    def command(self) -> Command:
        return _with(super().command(), "--cert", str(self.identity.certificate), "--key", str(self.identity.key))

    def settings(self) -> dict[str, str]:
        return super().settings() | {"s3.ca_file": str(self.identity.authority)}

    def _client(self) -> Any:
        session = boto3.Session(ACCESS_KEY, self.site.keys["s3"], region_name=REGION)
        return session.client("s3", endpoint_url=self.url, verify=str(self.identity.authority))


def _with(command: Command, *options: str) -> Command:
    program, *rest = command.arguments
    return replace(command, arguments=[program, *options, *rest])


class NamedS3(S3):
    """Buckets have names of their own: `headwater.s3.localhost`."""

    domain: ClassVar = "s3.localhost"

    def command(self) -> Command:
        return _with(super().command(), "--virtual-domain", self.domain)

    def settings(self) -> dict[str, str]:
        return super().settings() | {"s3.endpoint": f"http://{self.domain}:{self.site.ports['s3']}"}


class Forwarder(BaseHTTPRequestHandler):
    """Passes every request on as it is, also those that are sent to a proxy."""

    upstream = ""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self) -> None:
        server = http.client.HTTPConnection(self.upstream)
        parts = urlsplit(self.path)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        server.request(self.command, path, self.body(), dict(self.headers.items()))
        self.pass_back(server.getresponse())

    def pass_back(self, answer: http.client.HTTPResponse) -> None:
        given = answer.read()
        left_out = {"transfer-encoding", "connection", "content-length"}
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in left_out}
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(given))
        self.reply(answer.status, headers | {"Content-Length": length or "0"}, given)

    def reply(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = lambda self: self.answer()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def forwarding(upstream: str, by: type[Forwarder] = Forwarder) -> Iterator[str]:
    """The address of a server that passes requests on to another."""
    handler = type("_Forwarder", (by,), {"upstream": upstream})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class SecureKafka(Kafka):
    """Asks every client for a certificate and a password, over TLS; only itself it trusts without."""

    ports: ClassVar = ("kafka", "kafka-controller", "kafka-inner")
    user: ClassVar = "headwater"

    def __init__(self, site: Site, identity: Identity) -> None:
        super().__init__(site)
        self.identity = identity
        self.password = "it's $ecret"

    def properties(self) -> str:
        pair = self.directory / "pair.pem"
        pair.write_bytes(self.identity.key.read_bytes() + self.identity.certificate.read_bytes())
        inner = self.site.address("kafka-inner")
        users = f'user_{self.user}="{self.password}"'
        more = {
            "listeners": f"SASL_SSL://{self.address},INNER://{inner},CONTROLLER://{self.site.address('kafka-controller')}",
            "advertised.listeners": f"SASL_SSL://{self.address},INNER://{inner}",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INNER",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule required {users};",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(pair),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.identity.authority),
            "ssl.client.auth": "required",
        }
        return super().properties() + "".join(f"{name}={value}\n" for name, value in more.items())

    def client_conf(self, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        return super().client_conf() | self.kafka_conf(mechanism)

    def kafka_conf(self, mechanism: str) -> dict[str, str]:
        """What stands under `[kafka.conf]`."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": str(self.identity.authority),
            "ssl.certificate.location": str(self.identity.certificate),
            "ssl.key.location": str(self.identity.key),
        }

    def _format(self, *options: str) -> None:
        known = f"SCRAM-SHA-512=[name={self.user},password={self.password}]"
        super()._format(*options, "--add-scram", known)


@contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """For a while; None takes a variable away. What was changed meanwhile is put back too."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class Ignoring(Forwarder):
    """A server that ignores If-None-Match, on some requests: it passes all on without, signed anew."""

    methods: ClassVar = ("PUT", "POST")
    keys: ClassVar = ("", "")
    puts: ClassVar[list[str]] = []

    def answer(self) -> None:
        given = {name: value for name, value in self.headers.items() if name.lower() not in _SIGNED_ANEW}
        if self.command in self.methods:
            given = {name: value for name, value in given.items() if name.lower() != "if-none-match"}
        if self.command == "PUT":
            self.puts.append(self.path)
        body = self.body()
        request = AWSRequest(self.command, f"http://{self.upstream}{self.path}", given, body)
        S3SigV4Auth(Credentials(*self.keys), "s3", REGION).add_auth(request)
        server = http.client.HTTPConnection(self.upstream)
        server.request(self.command, self.path, body, dict(request.headers.items()))
        self.pass_back(server.getresponse())


_SIGNED_ANEW = {"authorization", "x-amz-date", "x-amz-content-sha256", "host", "expect", "connection"}


@contextmanager
def ignoring(settings: Settings, methods: tuple[str, ...] = ("PUT", "POST")) -> Iterator[tuple[Settings, list[str]]]:
    """The settings of a server that ignores the header on requests of these methods, and the puts that it got."""
    puts: list[str] = []
    keys = (settings.text("s3.access_key"), settings.text("s3.secret_key"))
    by = type("_Ignoring", (Ignoring,), {"methods": methods, "keys": keys, "puts": puts})
    with forwarding(settings.text("s3.endpoint").removeprefix("http://"), by) as address:
        chosen = {**settings.chosen, "s3.endpoint": Chosen(address, "test")}
        yield replace(settings, chosen=chosen), puts
