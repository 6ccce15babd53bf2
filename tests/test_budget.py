"""A replay with a budget never spends more than it, whatever a service bills and however it misbehaves; where nobody
can tell beforehand what a call will cost, at most by one call. Counted at the service, not in our books."""

from collections.abc import Callable, Iterator
from typing import Any

import hostile
import numpy as np
import pyarrow as pa
import pytest
from endpoint_server import EndpointServer, Request, changed, garbage
from PIL import Image
from pyspark import TaskContext
from sample_rows import NOON, rows

from headwater import lake as lakes
from headwater.demo.drawing import wav_bytes
from headwater.domain.tables import MESSAGES
from headwater.errors import InvalidRequest
from headwater.facets.models import Budget
from headwater.flow.derive import worker
from headwater.flow.derive.work import Work
from headwater.flow.embed.worker import EmbedWork, embed_batches
from headwater.lake import Lake
from headwater.settings import FILE_NAME
from headwater.upkeep.models.replay import Replayed

MODELS = """\
[models]
transcribe = "cheap_models:CheapSpeech"
caption = "cheap_models:CheapReader"
embed = "lexical"

[model.calls]
kind = "openai-embeddings"
url = "{url}"
model = "by-call"
dimension = 8
batch_items = 4
price = 1.0
price_unit = "call"

[model.tokens]
kind = "openai-embeddings"
url = "{url}"
model = "by-token"
dimension = 8
batch_items = 4
price = 1.0

[model.seconds]
kind = "openai-transcription"
url = "{url}"
model = "by-second"
price = 1.0

[model.later]
kind = "openai-transcription"
url = "{url}"
model = "never-begun"
price = 1.0

[model.seen]
kind = "openai-caption"
url = "{url}"
model = "by-token"
price = 1.0
price_unit = "1k_tokens"
"""
TEXTS, CALLS, PICTURES = 20, 8, 6


@pytest.fixture(scope="module")
def server() -> Iterator[EndpointServer]:
    with EndpointServer(dimension=8) as started:
        yield started


@pytest.fixture(scope="module")
def lake(engine: None, server: EndpointServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    directory = tmp_path_factory.mktemp("budget")
    lake, media = directory / "lake", directory / "media"
    lake.mkdir()
    media.mkdir()
    (lake / FILE_NAME).write_text(MODELS.format(url=server.url), encoding="utf-8")
    for number in range(CALLS - 1):
        (media / f"call-{number}.wav").write_bytes(wav_bytes(np.full(16_000, 100 + number, np.int16)))
    (media / "liar.flac").write_bytes(hostile.flac_claiming(samples=1_600))  # it claims a tenth of a second, of two
    for number in range(PICTURES):
        Image.new("RGB", (16, 16), (number * 40, 0, 0)).save(media / f"picture-{number}.png")
    with lakes.init(lake) as made:
        made.put(media, customer="acme")
        for number in range(TEXTS):
            made.put_text(f"message number {number} about a refund", customer="acme", id=f"m{number}")
        made.run()
        yield made


@pytest.fixture(autouse=True)
def fresh(server: EndpointServer) -> Iterator[None]:
    server.requests.clear()
    yield
    server.always()


def replay_until_done(lake: Lake, step: str, model: str, money: float) -> list[Replayed]:
    """With the same budget again and again."""
    done: list[Replayed] = []
    while not done or not done[-1].finished:
        done.append(lake.models.replay(step, model, budget=Budget(money=money)))
        assert len(done) < 20
    return done


def asked_at(server: EndpointServer, path: str) -> list[Request]:
    """Without what live embedders ask meanwhile, for what a replay has made."""
    return [request for request in server.requests if request.path.endswith(path)]


def seconds_of(request: Request) -> float:
    return (len(request.content["file"]) - 44) / 2 / 16_000


def test_an_embedder_paid_by_the_call_makes_no_call_too_many(lake: Lake, server: EndpointServer) -> None:
    first = lake.models.replay("embed", "calls", budget=Budget(money=3))
    assert len(server.requests) == 3 and not first.finished
    assert first.spent["cost"] == pytest.approx(3) and first.done >= 9
    assert first.spent["faults"] == 0  # what could not be paid is no fault of anybody's
    # What was made is committed: the next one goes on there, and nothing is asked twice.
    rest = replay_until_done(lake, "embed", "calls", 3)
    texts = [text for request in server.requests for text in request.content["input"]]
    assert len(texts) == len(set(texts)) and all(one.spent.get("cost", 0) <= 3 for one in rest)
    assert sum(one.spent.get("cost", 0) for one in (first, *rest)) == pytest.approx(len(server.requests))
    found = lake.sql("select count(*) as n from all_models.embeddings where model like '%by-call%'")["rows"]
    assert found == lake.sql("select count(*) as n from embeddings")["rows"]


def test_an_embedder_that_bills_eight_times_as_much_is_stopped_after_one_call_too_many(
    lake: Lake, server: EndpointServer
) -> None:
    """A token for each byte is more than any tokeniser makes: who bills more than that is stopped all the same."""
    billed = 400

    def dear(good: dict[str, Any]) -> dict[str, Any]:
        return {**good, "usage": {"total_tokens": billed * len(good["data"])}}

    server.always(changed(dear))
    most = 4 * billed / 1000
    made = lake.models.replay("embed", "tokens", budget=Budget(money=2.0))
    spent = sum(len(request.content["input"]) for request in server.requests) * billed / 1000
    assert not made.finished and made.spent["cost"] == pytest.approx(spent)
    assert spent <= 2.0 + most


def test_a_service_that_spoils_every_answer_is_paid_no_more_than_the_budget(lake: Lake, server: EndpointServer) -> None:
    server.always(garbage())
    made = lake.models.replay("embed", "tokens", budget=Budget(money=0.3))
    bounds = [sum(len(text.encode()) + 16 for text in request.content["input"]) for request in server.requests]
    assert not made.finished and server.requests
    assert sum(bounds) / 1000 <= 0.3 and made.spent["cost"] == pytest.approx(sum(bounds) / 1000)


def test_speech_is_paid_by_what_is_heard_and_not_by_what_a_header_claims(lake: Lake, server: EndpointServer) -> None:
    """Seven calls of a second, and a liar of two seconds that claims a tenth of one."""
    done = replay_until_done(lake, "transcribe", "seconds", 2.5)
    heard = [seconds_of(request) for request in asked_at(server, "/transcriptions")]
    assert sorted(heard) == [1.0] * 7 + [2.0]
    assert all(one.spent.get("cost", 0) <= 2.5 + 1e-6 for one in done)
    assert sum(one.spent.get("cost", 0) for one in done) == pytest.approx(sum(heard))


def test_what_nobody_can_tell_beforehand_is_asked_for_one_at_a_time(lake: Lake, server: EndpointServer) -> None:
    """42 tokens a picture, as the service says afterwards."""
    done = replay_until_done(lake, "caption", "seen", 0.1)
    assert len(asked_at(server, "/completions")) == PICTURES
    assert all(one.spent.get("cost", 0) <= 0.1 + 0.042 + 1e-9 for one in done) and len(done) >= 2


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Which try of a task this process takes itself for, as in one of Spark's workers."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)

    def take(number: int) -> None:
        TaskContext._getOrCreate()._attemptNumber = number

    return take


def test_a_task_that_spark_does_once_more_spends_nothing_and_has_what_was_remembered(
    lake: Lake, server: EndpointServer, attempt: Callable[[int], None]
) -> None:
    said = [{"object_id": f"o{number}", "text": f"a text nobody has asked for: {number}"} for number in range(4)]
    texts = rows(MESSAGES, said).append_column("source_table", pa.repeat(MESSAGES.name, len(said)))

    def answers() -> list[dict[str, Any]]:
        work = EmbedWork("calls", lake.settings, NOON, purse=100.0)
        return [row for batch in embed_batches(work)(texts.to_batches()) for row in batch.to_pylist()]

    attempt(1)
    assert {row["reason"] for row in answers()} == {"OVER_BUDGET"} and not server.requests
    attempt(0)
    assert all(row["vector"] for row in answers()) and len(server.requests) == 1
    attempt(1)
    assert all(row["vector"] and row["remembered"] for row in answers()) and len(server.requests) == 1


def test_of_a_derivation_that_spark_does_once_more_nothing_is_paid(lake: Lake, attempt: Callable[[int], None]) -> None:
    for number, money in ((0, 100.0), (1, 0.0)):
        attempt(number)
        assert worker._worker_for(Work({}, lake.settings, NOON, purse=100.0)).budget.money == money
        assert worker._worker_for(Work({}, lake.settings, NOON)).budget.money is None


def test_what_is_paid_is_not_replayed_where_spark_may_do_a_task_twice_at_once(
    lake: Lake, server: EndpointServer
) -> None:
    conf = lake.spark.sparkContext._conf
    conf.set("spark.speculation", "true")
    try:
        with pytest.raises(InvalidRequest, match=r"spark\.speculation is on"):
            lake.models.replay("transcribe", "later", budget=Budget(money=1))
    finally:
        conf.set("spark.speculation", "false")
    assert not server.requests
