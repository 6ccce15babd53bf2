"""Who does not answer lets texts or vectors wait. What is wrong elsewhere is not taken for that, and ends the run."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import lake as lakes
from headwater.errors import HeadwaterError, Unavailable
from headwater.lake import Lake
from headwater.settings import FILE_NAME

MODELS = """\
[models]
embed = "{embed}"

[model.unfinished]
kind = "bad_models:UnfinishedEmbedder"
mended = "/nowhere"
"""
PATIENCE_SECONDS = 60


@pytest.fixture
def lake(engine: None, tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "lake").mkdir()
    yield from opened(tmp_path / "lake", "cheap_models:CheapEmbedder")


def opened(directory: Path, embed: str) -> Iterator[Lake]:
    (directory / FILE_NAME).write_text(MODELS.format(embed=embed), encoding="utf-8")
    with lakes.init(directory) as made:
        yield made


def notes(lake: Lake) -> str:
    return (lake.settings.lake / "logs" / "headwater.jsonl").read_text(encoding="utf-8")


def test_a_memo_that_does_not_answer_is_no_embedder_that_is_down_and_ends_the_run(lake: Lake) -> None:
    (lake.settings.lake / "memo").mkdir(exist_ok=True)
    (lake.settings.lake / "memo" / "embed").write_text("in the way")
    lake.put_text("is anybody there?", customer="acme")
    ended: list[BaseException] = []

    def run() -> None:
        try:
            lake.run(once=False, stop=stop)
        except HeadwaterError as error:
            ended.append(error)

    stop = threading.Event()
    running = threading.Thread(target=run)
    running.start()
    running.join(PATIENCE_SECONDS)
    stop.set()
    running.join(PATIENCE_SECONDS)
    assert [type(error) for error in ended] == [Unavailable]
    assert "embedder.down" not in notes(lake)


def test_texts_wait_for_an_embedder_that_cannot_be_loaded(engine: None, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    for lake in opened(tmp_path / "lake", "unfinished"):
        lake.put_text("is anybody there?", customer="acme")
        with pytest.raises(Unavailable, match=r"so texts wait: .* cannot be loaded"):
            lake.run()
        assert lake.table("messages").to_arrow().num_rows == 1 and lake.pending().embed == 1
        assert "embedder.down" in notes(lake)
