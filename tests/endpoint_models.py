"""Models behind an endpoint, as the tests make them: against a server of their own, with short waits."""

from collections.abc import Iterator
from typing import Any

import pytest
from endpoint_server import EndpointServer

from headwater.flow.models.call_policy import TimeAndChance
from headwater.flow.models.registry import load_model

QUICK = TimeAndChance(chance=lambda: 0.02)  # waits of 10 ms, then 20 ms: the tests need not see how long they get


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    with EndpointServer() as found:
        yield found


def embedder(server: EndpointServer, timing: TimeAndChance = QUICK, **options: Any) -> Any:
    return made("openai-embeddings", server, timing, **{"dimension": 8, **options})


def made(kind: str, server: EndpointServer, timing: TimeAndChance = QUICK, **options: Any) -> Any:
    model: Any = load_model("m", {"m": {"kind": kind, "url": server.url, "model": "tiny", **options}})
    model.load(timing)
    return model
