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
from typing import Any, ClassVar, Final, NoReturn, cast, get_args
from urllib.parse import parse_qsl, urlsplit

from headwater.errors import DataFault, InvalidRequest, Unavailable
from headwater.flow.models.call_policy import CallLimits, CallPolicy, TimeAndChance, TryAgain
from headwater.flow.models.exchange import Exchange, NoReply, Reply, Unusable
from headwater.flow.models.port import Accepts, ModelCard, PriceUnit, Produces
from headwater.flow.models.request_estimate import RequestEstimate
from headwater.flow.models.spending import Reserved, paid_call
from headwater.flow.models.waiting import waiting
from headwater.masking import Mask

ANSWER_BYTES_MAX: Final = 256 << 20  # of any answer; what a request asks for may need much less
SAID_LETTERS, LINE_LETTERS = 64 << 10, 200  # of what a service says about a refusal: what is looked at, what is shown
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
    tells_waiting: ClassVar[bool] = True

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

    def load(self, timing: TimeAndChance | None = None) -> None:
        self._endpoint = Endpoint(self, timing or TimeAndChance())

    @property
    def endpoint(self) -> "Endpoint":
        if self._endpoint is None:
            self.load()
        assert self._endpoint is not None
        return self._endpoint

    def _limits(self) -> CallLimits:
        return CallLimits(
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
    """Sends requests as its card and section allow. Threads may share it."""

    def __init__(self, model: EndpointModel, timing: TimeAndChance) -> None:
        self._timing = timing
        self._card = model.card
        self._name = model.card.name
        secret = _secret(model.key_env)
        self._mask = Mask(secret, *_secrets_in(model.url))
        self._policy = CallPolicy(self._name, model._limits(), timing)
        self._exchange = Exchange({"Authorization": f"Bearer {secret}"} if secret else {}, model.concurrency)
        self._url = model.url.rstrip("/")

    def deadline(self) -> float:
        """For `post`, where one answer takes several requests."""
        return self._policy.deadline()

    def post(
        self,
        path: str,
        identity: bytes,
        build: Callable[[], Mapping[str, Any]],
        estimate: RequestEstimate,
        until: float | None = None,
    ) -> Answer:
        """`identity` is that of what is asked; `build` gives the request's body anew for each try, as httpx takes it.

        What was answered is charged, whether or not the answer can be used.
        """
        key = hashlib.sha256(b"\n".join([self._card.fingerprint.encode(), path.encode(), identity])).hexdigest()
        with waiting(), paid_call(estimate.cost_most(self._card)) as reserved:

            def attempt(seconds: float) -> dict[str, Any]:
                return self._try(path, key, build(), seconds, estimate, reserved)

            answer, attempts = self._policy.call(attempt, until)
        return Answer(answer, attempts)

    def _try(
        self,
        path: str,
        key: str,
        body: Mapping[str, Any],
        seconds: float,
        estimate: RequestEstimate,
        reserved: Reserved,
    ) -> dict[str, Any]:
        headers = {"Idempotency-Key": key}
        most = min(estimate.bytes_most, ANSWER_BYTES_MAX)
        try:
            reply = self._exchange.post(self._url + path, body, headers, seconds, most)
        except NoReply as error:
            raise TryAgain(self._brief(str(error))) from None
        except Unusable as error:
            reserved.cost += estimate.cost_of(self._card, {})
            raise DataFault("BAD_OUTPUT", f"{self._name} answered with {error}.") from None
        if not 200 <= reply.status < 300:
            self._refuse(reply)
        content: dict[str, Any] = {}
        try:
            content = self._mask.answer(parse(reply.content, self._name))
        finally:
            reserved.cost += estimate.cost_of(self._card, content)
        return content

    def _refuse(self, reply: Reply) -> NoReturn:
        status = reply.status
        reason = f"{status} {self._brief(_reason(reply.content))}".strip()
        if status in PASSING or status >= 500:
            raise TryAgain(reason, retry_after_seconds(reply.headers.get("Retry-After"), self._timing.now()))
        if status in INPUT_FAULTS:
            raise DataFault("UNSUPPORTED", f"{self._name} refuses it: {reason}")
        remedy = REMEDIES.get(status, "Check url in its section")
        raise Unavailable(f"{self._name} answers {reason}. {remedy}, then headwater retry.")

    def _brief(self, text: str) -> str:
        """In at most a line. Masked before it is cut: half a secret is not recognised."""
        return " ".join(self._mask.text(text[:SAID_LETTERS]).split())[:LINE_LETTERS]


def parse(content: bytes, name: str) -> dict[str, Any]:
    """Raises DataFault where it is no JSON object. NaN and Infinity, which are no JSON, spoil their own place only."""
    try:
        found = json.loads(content)
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


def _secret(key_env: str) -> str:
    if not key_env:
        return ""
    if not (key := os.environ.get(key_env, "").strip()):
        raise Unavailable(f"The environment variable {key_env} is not set. Set it to the service's key.")
    if not (key.isascii() and key.isprintable()):
        raise Unavailable(f"The environment variable {key_env} holds what cannot be a key. Set it again.")
    return key


def _secrets_in(url: str) -> list[str]:
    """A service may want its key in the address."""
    return [value for _, value in parse_qsl(urlsplit(url).query)]


def _reason(content: bytes) -> str:
    """What the service says about its refusal."""
    try:
        body = json.loads(content)
        error = body.get("error", body) if isinstance(body, dict) else body
        return str(error.get("message", error.get("detail", "")) if isinstance(error, dict) else error)
    except (ValueError, RecursionError):
        return content[:SAID_LETTERS].decode(errors="replace")
