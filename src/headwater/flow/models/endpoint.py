"""An OpenAI-compatible endpoint: what vLLM, Ollama, speech servers and hosted services have in common.

Key        the Idempotency-Key of a request: the model's fingerprint and what is asked, nothing else; so a retry, also
           after a restart, is the same request to a server that honours it
Invariant  a key for the service comes from the environment variable that `key_env` names, and is written nowhere.

Foreign errors stop here: what may pass is tried again, what is set up wrongly is Unavailable, what is the input's
fault and what cannot be used is a DataFault.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, cast, get_args
from urllib.parse import urlsplit

from headwater.errors import DataFault, InvalidRequest, Unavailable
from headwater.flow.models.extras import not_installed
from headwater.flow.models.manners import Limits, Manners, TryAgain, World
from headwater.flow.models.port import Accepts, ModelCard, PriceUnit, Produces

if TYPE_CHECKING:
    import httpx

ANSWER_BYTES_MAX: Final = 64 << 20
CONNECT_SECONDS: Final = 10.0  # a machine that is there says so at once
PASSING: Final = frozenset({408, 425, 429})  # and every 5xx
INPUT_FAULTS: Final = frozenset({400, 413, 415, 422})
REMEDIES: Final = {
    401: "Set the variable that key_env names to a valid key",
    402: "Its account has run out of credit",
    403: "Give its key the right to use this model",
    404: "Check url and model in its section",
}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(kw_only=True)
class EndpointModel:
    """The options that every model behind an endpoint has; the fields are the keys of its section."""

    kind: ClassVar[str]
    accepts: ClassVar[Accepts]
    produces: ClassVar[Produces]

    url: str
    model: str
    key_env: str = ""
    version: str = "1"
    price: float = 0.0
    price_unit: str = "call"
    concurrency: int = 4
    requests_per_second: float = 0.0
    deadline_seconds: float = 300.0
    timeout_seconds: float = 60.0
    breaker_failures: int = 6
    breaker_seconds: float = 30.0
    _endpoint: "Endpoint | None" = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidRequest(f"url must begin with http:// or https:// and name a host, found {self.url!r}.")
        if parts.username or parts.password:
            raise InvalidRequest("url carries a password. Put the key in an environment variable and name it: key_env.")
        if self.key_env and not _VARIABLE.fullmatch(self.key_env):
            # Not shown: what stands there is likely the key itself.
            raise InvalidRequest("key_env must be the name of an environment variable, not the key.")
        if self.price_unit not in get_args(PriceUnit):
            self._refuse_option("price_unit", f"one of {', '.join(get_args(PriceUnit))}")
        for name in ("concurrency", "deadline_seconds", "timeout_seconds", "breaker_failures", "breaker_seconds"):
            self._check_number(name, above=0)
        for name in ("price", "requests_per_second"):
            self._check_number(name, above=-1e-9)

    def _check_number(self, name: str, above: float) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > above:
            self._refuse_option(name, f"a number above {max(above, 0):g}")

    def _refuse_option(self, name: str, wanted: str) -> NoReturn:
        raise InvalidRequest(f"{name} must be {wanted}, found {getattr(self, name)!r}.")

    @cached_property
    def card(self) -> ModelCard:
        return ModelCard(
            name=f"{self.kind}/{self.model}",
            version=self.version,
            accepts=self.accepts,
            produces=self.produces,
            parameters={"model": self.model, **self.answering()},
            batch_items=self.most_items(),
            price_unit=cast(PriceUnit, self.price_unit),
            price=self.price,
            deadline_seconds=self.deadline_seconds,
            concurrency=self.concurrency,
        )

    def answering(self) -> dict[str, Any]:
        """The options, beside the model, that change what is answered: never where it stands or how it is called."""
        return {}

    def most_items(self) -> int:
        return 1

    def load(self, world: World | None = None) -> None:
        self._endpoint = Endpoint(self, world or World())

    @property
    def endpoint(self) -> "Endpoint":
        if self._endpoint is None:
            self.load()
        assert self._endpoint is not None
        return self._endpoint

    def _limits(self) -> Limits:
        return Limits(
            self.concurrency,
            self.requests_per_second,
            self.deadline_seconds,
            self.timeout_seconds,
            self.breaker_failures,
            self.breaker_seconds,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """JSON, and how many requests it took."""

    content: dict[str, Any]
    attempts: int


class Endpoint:
    """Sends requests with good manners. Threads may share it."""

    def __init__(self, model: EndpointModel, world: World) -> None:
        try:
            import httpx
        except ImportError as error:
            raise not_installed("endpoint", error) from error

        self._world = world
        self._name = model.card.name
        self._fingerprint = model.card.fingerprint
        self._secret = _secret(model.key_env)
        self._manners = Manners(self._name, model._limits(), world)
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {self._secret}"} if self._secret else {},
            limits=httpx.Limits(max_connections=model.concurrency, max_keepalive_connections=model.concurrency),
        )
        self._url = model.url.rstrip("/")

    def deadline(self) -> float:
        """For `post`, where one answer takes several requests."""
        return self._manners.deadline()

    def post(
        self, path: str, asked: bytes, build: Callable[[], Mapping[str, Any]], until: float | None = None
    ) -> Answer:
        """`asked` identifies what is asked; `build` gives the request's body anew for each try, as httpx takes it."""
        key = hashlib.sha256(b"\n".join([self._fingerprint.encode(), path.encode(), asked])).hexdigest()
        answer, attempts = self._manners.call(lambda seconds: self._try(path, key, build(), seconds), until)
        return Answer(answer, attempts)

    def _try(self, path: str, key: str, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        import httpx

        headers = {"Idempotency-Key": key}
        timeout = httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
        until = self._world.clock() + seconds
        try:
            with self._client.stream("POST", self._url + path, headers=headers, timeout=timeout, **body) as response:
                content = self._read(response, until)
        except httpx.TimeoutException as error:
            raise TryAgain(f"{type(error).__name__} at {seconds:.3g} s") from error
        except httpx.TransportError as error:
            raise TryAgain(f"{type(error).__name__}: {error}") from error
        except httpx.DecodingError as error:
            raise DataFault("BAD_OUTPUT", f"{self._name} answered with a broken encoding: {error}.") from error
        if not response.is_success:
            self._refuse(response, content)
        return parse(content, self._name)

    def _read(self, response: "httpx.Response", until: float) -> bytes:
        """The client's timeout is for one block; an answer that drips is stopped here."""
        content = bytearray()
        for block in response.iter_bytes():
            content += block
            if len(content) > ANSWER_BYTES_MAX:
                raise DataFault("BAD_OUTPUT", f"{self._name} answered with more than {ANSWER_BYTES_MAX >> 20} MB.")
            if self._world.clock() > until:
                raise TryAgain("the answer came too slowly")
        return bytes(content)

    def _refuse(self, response: "httpx.Response", content: bytes) -> NoReturn:
        status = response.status_code
        said = f"{status} {_reason(content)}".strip()
        said = said.replace(self._secret, "***") if self._secret else said
        if status in PASSING or status >= 500:
            raise TryAgain(said, retry_after_seconds(response.headers.get("Retry-After"), self._world.now()))
        if status in INPUT_FAULTS:
            raise DataFault("UNSUPPORTED", f"{self._name} refuses it: {said}")
        remedy = REMEDIES.get(status, "Check url in its section")
        raise Unavailable(f"{self._name} answers {said}. {remedy}, then headwater retry.")


def parse(content: bytes, name: str) -> dict[str, Any]:
    """Raises DataFault where it is not a JSON object, or has a NaN or Infinity, which are no JSON."""

    def no_number(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no number")

    try:
        found = json.loads(content, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise DataFault("BAD_OUTPUT", f"{name} answered with something that is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise DataFault("BAD_OUTPUT", f"{name} answered with JSON that is not an object.")
    return found


def retry_after_seconds(header: str | None, now: datetime) -> float | None:
    """Seconds or an HTTP date; None where there is none, or none that can be read."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            moment = parsedate_to_datetime(header)
        except ValueError:
            return None
        seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def count_tokens(content: Mapping[str, Any]) -> int:
    """What the service says that it billed; nothing where it does not say."""
    usage = content.get("usage")
    found = usage.get("total_tokens") if isinstance(usage, dict) else None
    return found if isinstance(found, int) and found > 0 else 0


def _secret(key_env: str) -> str:
    if not key_env:
        return ""
    if not (key := os.environ.get(key_env, "").strip()):
        raise Unavailable(f"The environment variable {key_env} is not set. Set it to the service's key.")
    if not (key.isascii() and key.isprintable()):
        raise Unavailable(f"The environment variable {key_env} holds what cannot be a key. Set it again.")
    return key


def _reason(content: bytes) -> str:
    """What the service says about its refusal, in at most a line."""
    try:
        said = json.loads(content)
        error = said.get("error", said) if isinstance(said, dict) else said
        text = str(error.get("message", error.get("detail", "")) if isinstance(error, dict) else error)
    except ValueError:
        text = content[:200].decode(errors="replace")
    return " ".join(text.split())[:200]
