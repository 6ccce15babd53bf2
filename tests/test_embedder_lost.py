"""A text that kills, freezes or bloats its embedder costs itself; the others are embedded, in bounded time."""

import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from headwater import lake as lakes
from headwater.errors import Unavailable
from headwater.flow.child import process
from headwater.flow.embed import model_process
from headwater.flow.embed.asking import Embedder
from headwater.flow.embed.model_process import ModelProcess
from headwater.settings import FILE_NAME, resolve

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOO_MUCH = {
    "a segfault": "CRASHED",
    "one that is killed for memory": "CRASHED",
    "a glutton": "TOO_LARGE",
    "one that makes it hang": "TIMEOUT",
    "one that makes it exit": "CRASHED",
}
FINE = [f"all is well, says number {number}" for number in range(40)]


def embedder(tmp_path: Path, model: str, **settings: object) -> Embedder:
    chosen = {"limits.step_seconds": 2.0, "limits.child_mb": 256, **settings}
    section = {"kind": f"bad_models:{model}", "mended": str(tmp_path / "mended")}
    made = ModelProcess("it", resolve(tmp_path, {"model": {"it": section}}, chosen, {}))
    made.load()
    return Embedder(made, sleep=lambda seconds: None)


@pytest.fixture
def fragile(tmp_path: Path) -> Iterator[Embedder]:
    made = embedder(tmp_path, "FragileEmbedder")
    yield made
    made.close()


def test_each_text_that_takes_its_embedder_with_it_is_set_aside_alone(fragile: Embedder) -> None:
    kept: list[str] = []
    answers = fragile.ask_all([*FINE[:20], *TOO_MUCH, *FINE[20:]], kept.extend)
    assert {text: answer["reason"] for text, answer in answers.items() if "reason" in answer} == TOO_MUCH
    assert sorted(kept) == sorted(FINE)
    assert "SIGSEGV" in answers["a segfault"]["detail"] and "answers other texts" in answers["a segfault"]["detail"]
    assert "limits.step_seconds" in answers["one that makes it hang"]["detail"]


def test_each_text_that_hangs_leaves_the_next_one_less_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_process, "CALL_SECONDS_MIN", 0.5)
    made = embedder(tmp_path, "FragileEmbedder", **{"limits.step_seconds": 4.0})
    answers = made.ask_all([f"hang {number}" for number in range(5)], lambda fresh: None)
    assert {answer["reason"] for answer in answers.values()} == {"TIMEOUT"}
    waited = [str(answer["detail"]).partition("no answer in ")[2].split()[0] for answer in answers.values()]
    assert waited[:3] == ["4", "2", "1"] and float(waited[4]) < 1
    made.close()


def test_an_embedder_that_takes_no_more_than_a_pipe_holds_is_lost_in_time_and_its_texts_are_embedded_by_the_next(
    fragile: Embedder,
) -> None:
    assert isinstance(fragile.model, ModelProcess) and fragile.model._child is not None
    fragile.model._child.process.send_signal(signal.SIGSTOP)
    texts = [f"{number} is long: {'word ' * 40_000}" for number in range(4)]
    answers = fragile.ask_all(texts, lambda fresh: None)
    assert all("vector" in answer for answer in answers.values())


def test_an_embedder_that_closes_its_pipes_and_lives_on_is_not_waited_for(
    fragile: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "END_SECONDS", 0.2)
    answers = fragile.ask_all([FINE[0], "one that closes its pipes"], lambda fresh: None)
    assert "vector" in answers[FINE[0]]
    assert answers["one that closes its pipes"]["reason"] == "CRASHED"


def test_a_slow_embedder_is_not_taken_for_texts_that_hang(tmp_path: Path) -> None:
    made = embedder(tmp_path, "SlowEmbedder", **{"limits.step_seconds": 1.5})
    answers = made.ask_all(FINE, lambda fresh: None)
    assert all("vector" in answer for answer in answers.values())
    made.close()


def test_an_embedder_that_takes_its_process_with_it_whatever_it_is_asked_lets_texts_wait(tmp_path: Path) -> None:
    made = embedder(tmp_path, "DeadlyEmbedder")
    answers = made.ask_all(FINE[:3], lambda fresh: None)
    assert {answer["reason"] for answer in answers.values()} == {"MODEL_DOWN"}
    assert "SIGKILL" in answers[FINE[0]]["detail"]
    made.close()


def test_an_embedder_that_cannot_be_loaded_says_why_and_leaves_no_process(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="of the weights are missing"):
        embedder(tmp_path, "UnfinishedEmbedder")
    assert not [child for child in psutil.Process().children() if "headwater.flow.embed.child" in child.cmdline()]


def test_a_run_embeds_everything_but_the_texts_that_are_too_much_and_these_recover_with_their_model(
    engine: None, tmp_path: Path
) -> None:
    directory = tmp_path / "lake"
    directory.mkdir()
    (directory / FILE_NAME).write_text(
        f"""\
limits.step_seconds = 3
limits.child_mb = 256

[models]
embed = "fragile"

[model.fragile]
kind = "bad_models:FragileEmbedder"
mended = "{tmp_path / "mended"}"
""",
        encoding="utf-8",
    )
    with lakes.init(directory) as lake:
        for text in (*FINE, *TOO_MUCH):
            lake.put_text(text, customer="acme", id=text, at=AT)
        lake.run()
        held = {row["event_id"]: row["reason"] for row in lake.quarantine()["rows"]}
        assert held == TOO_MUCH
        assert not lake.pending()
        assert len(lake.table("embeddings").to_arrow()) == len(FINE)

        (tmp_path / "mended").touch()
        again = lake.retry()
        assert (again.tried, again.still_quarantined) == (len(TOO_MUCH), 0)
        assert len(lake.table("embeddings").to_arrow()) == len(FINE) + len(TOO_MUCH)
