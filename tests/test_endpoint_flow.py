"""A model behind an endpoint that misbehaves, through the whole flow: what is a row, what waits, what is set aside, and
how often the server was asked."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import rounds
from endpoint_server import EndpointServer, changed, fail, garbage, late, throttle
from waiting import let_pass

from headwater import lake as lakes
from headwater.clock import Clock, utc_now
from headwater.components import Components
from headwater.errors import Unavailable
from headwater.lake import Lake
from headwater.settings import FILE_NAME, load

BREAKER_SECONDS = 1
MODELS = """\
[models]
transcribe = "calls"
caption = "cheap_models:CheapReader"
embed = "{embed}"

[model.calls]
kind = "openai-transcription"
url = "{url}"
model = "tiny"
price = 0.001
timeout_seconds = 2
deadline_seconds = 6
breaker_seconds = {breaker}

[model.meaning]
kind = "openai-embeddings"
url = "{url}"
model = "tiny"
dimension = 8
batch_items = 2
price = 0.02
timeout_seconds = 2
deadline_seconds = 4
breaker_seconds = {breaker}
"""


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    with EndpointServer(dimension=8) as started:
        yield started


class StandingClock:
    """It moves on when it is told to: a slow machine must not make anything due."""

    def __init__(self) -> None:
        self._now = utc_now()

    def __call__(self) -> datetime:
        return self._now

    def later(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


def open_lake(directory: Path, server: EndpointServer, embed: str = "lexical", clock: Clock = utc_now) -> Lake:
    directory.mkdir()
    written = MODELS.format(url=server.url, embed=embed, breaker=BREAKER_SECONDS)
    (directory / FILE_NAME).write_text(written, encoding="utf-8")
    lakes.init(directory).close()
    return Lake(Components(load(directory), clock))


def put_calls(lake: Lake, tmp_path: Path, number: int) -> None:
    """Two calls of other content, each of two customers."""
    folder = rounds.make_media(tmp_path, number)
    for customer in ("acme", "globex"):
        for voice in range(2):
            lake.put(folder / f"call-{number}-{voice}.wav", customer=customer)


def come_back(server: EndpointServer) -> None:
    """The next run is quicker than workers that were left alone by a breaker take the endpoint up again."""
    server.come_back()
    let_pass(BREAKER_SECONDS + 0.1, "the breakers of the workers go by their own clock")


def test_errors_throttling_and_a_late_answer_make_one_row_each_and_work_is_done_once(
    engine: None, server: EndpointServer, tmp_path: Path
) -> None:
    with open_lake(tmp_path / "lake", server) as lake:
        put_calls(lake, tmp_path, 1)
        server.script(fail(500), fail(500), fail(503), throttle(1), late(3))
        ran = lake.run()
        assert lake.table("transcripts").to_arrow().num_rows == 4
        assert lake.status()["quarantined"] == 0
        # Two contents: each is worked on once, whatever went wrong on the way, under one key.
        assert len(set(server.keys)) == 2 and sum(server.work.values()) == 2
        (told,) = (model for tag, model in ran.models.items() if tag.startswith("transcribe/"))
        assert (told["calls"], told["remembered"]) == (2, 2)
        assert told["attempts"] == len(server.requests) == 7
        asked = len(server.requests)
        put_calls(lake, tmp_path / "again", 1)
        lake.run()
        assert len(server.requests) == asked


def test_garbage_costs_one_row_and_the_others_go_on(engine: None, server: EndpointServer, tmp_path: Path) -> None:
    clock = StandingClock()
    with open_lake(tmp_path / "lake", server, clock=clock) as lake:
        put_calls(lake, tmp_path, 1)
        server.script(garbage())
        lake.run()
        assert Counter(row["reason"] for row in lake.quarantine()["rows"]) == {"BAD_OUTPUT": 2}
        assert lake.table("transcripts").to_arrow().num_rows == 2
        # A useless answer is nobody's passing weakness: it waits for a person.
        clock.later(7200)
        assert not lake.pending()
        assert lake.retry().recovered == 2


def test_while_a_model_is_down_the_rest_goes_on_and_it_drains_by_itself_on_return(
    engine: None, server: EndpointServer, tmp_path: Path
) -> None:
    clock = StandingClock()
    with open_lake(tmp_path / "lake", server, clock=clock) as lake:
        server.leave()
        put_calls(lake, tmp_path, 1)
        lake.put_text("is anybody there?", customer="acme")
        lake.run()
        assert lake.table("events").to_arrow().num_rows == 5
        assert lake.table("metadata").to_arrow().num_rows == 4
        assert lake.search("is anybody there").hits
        assert Counter(row["reason"] for row in lake.quarantine()["rows"]) == {"MODEL_DOWN": 4}
        assert not lake.pending()

        clock.later(29)
        assert not lake.pending()
        clock.later(1)
        assert lake.pending() and lake.run().started
        assert {row["attempts"] for row in lake.quarantine()["rows"]} == {2}
        clock.later(59)
        assert not lake.pending()  # twice as late each time

        come_back(server)
        clock.later(1)
        lake.run()
        assert [row["detail"] for row in lake.quarantine()["rows"]] == []
        assert lake.table("transcripts").to_arrow().num_rows == 4
        assert lake.search("call", modality="audio").stale_by == 0
        assert sum(server.work.values()) == 2
        clock.later(90_000)
        assert not lake.pending()


def test_texts_wait_for_an_embedder_that_is_down_and_a_useless_vector_costs_one_row(
    engine: None, server: EndpointServer, tmp_path: Path
) -> None:
    with open_lake(tmp_path / "lake", server, embed="meaning") as lake:
        for number in range(6):
            lake.put_text(f"message number {number} about a refund", customer="acme", id=f"m{number}")
        server.leave()
        with pytest.raises(Unavailable, match="texts wait"):
            lake.run()
        assert lake.table("messages").to_arrow().num_rows == 6
        assert lake.pending().embed == 6
        assert lake.quarantine()["rows"] == []

        come_back(server)
        server.when(lambda request: "number 3" in str(request.content), changed(_not_a_number))
        ran = lake.run()
        assert lake.pending().embed == 0
        assert lake.table("embeddings").to_arrow().num_rows == 5
        (held,) = lake.quarantine()["rows"]
        assert (held["event_id"], held["step"], held["reason"]) == ("m3", "embed", "BAD_OUTPUT")
        asked = len(server.requests)
        assert len(lake.search("a refund", limit=10).hits) == 5
        assert len(server.requests) - asked == 1, "a question is paid once"
        (told,) = (model for tag, model in ran.models.items() if tag.startswith("embed/"))
        assert told["calls"] == 5 and told["tokens"] > 0 and told["cost"] > 0

        server.forget_rules()
        asked = len(server.requests)
        assert lake.retry().recovered == 1
        assert lake.table("embeddings").to_arrow().num_rows == 6
        # What was answered before is remembered: only the one that failed is asked again.
        assert len(server.requests) - asked == 1


def test_a_text_that_the_embedder_cannot_bear_is_set_aside_and_the_others_go_on(
    engine: None, server: EndpointServer, tmp_path: Path
) -> None:
    with open_lake(tmp_path / "lake", server, embed="meaning") as lake:
        for number in range(6):
            lake.put_text(f"message number {number} about a refund", customer="acme", id=f"m{number}")
        server.when(lambda request: "number 3" in str(request.content), fail(500))
        lake.run()
        assert lake.pending().embed == 0
        assert lake.table("embeddings").to_arrow().num_rows == 5
        (held,) = lake.quarantine()["rows"]
        assert (held["event_id"], held["step"], held["reason"]) == ("m3", "embed", "CRASHED")
        assert "answers other texts" in held["detail"]

        server.forget_rules()
        assert lake.retry().recovered == 1
        assert lake.table("embeddings").to_arrow().num_rows == 6


def _not_a_number(answer: dict[str, object]) -> dict[str, object]:
    data = answer["data"]
    assert isinstance(data, list)
    for item in data:
        item["embedding"] = [float("nan")] * 8
    return answer
