"""Pictures are found by words that nobody wrote in them, where a model places both in one space."""

from pathlib import Path

import pytest
from PIL import Image

from headwater import lake as lakes
from headwater.domain.model_book import State
from headwater.lake import Lake
from headwater.settings import FILE_NAME

PLAIN = '[models]\ncaption = "cheap_models:CheapReader"\nembed = "lexical"\n'
CLIP = PLAIN + 'picture = "cheap_models:CheapClip"\n'


def lake_at(directory: Path, toml: str) -> Lake:
    directory.mkdir()
    (directory / FILE_NAME).write_text(toml, encoding="utf-8")
    return lakes.init(directory)


def put(lake: Lake, folder: Path, **colours: tuple[int, int, int]) -> None:
    folder.mkdir(exist_ok=True)
    for name, colour in colours.items():
        Image.new("RGB", (40, 30), colour).save(folder / f"{name}.png")
        lake.put(folder / f"{name}.png", customer="acme")


def looked_for(lake: Lake, query: str, **only: str) -> list[str]:
    """Names of the pictures that were found by their looks."""
    hits = lake.search(query, **only).hits  # type: ignore[arg-type]
    return [Path(hit.entry.object_id).stem for hit in hits if hit.entry.model == "cheap-clip 1"]


def test_a_text_finds_a_picture_by_its_looks(engine: None, tmp_path: Path) -> None:
    with lake_at(tmp_path / "lake", CLIP) as lake:
        put(lake, tmp_path / "shots", one=(250, 5, 5), two=(5, 5, 250))
        lake.put_text("the red error", customer="acme")
        lake.run()
        assert looked_for(lake, "a red screen") == ["one"]
        assert looked_for(lake, "blue") == ["two"]
        assert looked_for(lake, "blue", modality="chat") == []
        assert looked_for(lake, "nothing of the kind") == []
        # Words are found as before, and the best of both lists comes first.
        best = lake.search("the red error").hits[0]
        assert best.entry.text == "the red error" and best.score >= 0.9
        assert {hit.why for hit in lake.search("blue")} == {"picture"}
        (row,) = lake.sql(
            "select chunk_id, text, object_id from embeddings where object_id like '%one.png' and text = ''"
        )["rows"]
        assert lake.trace(row["chunk_id"])["object"]["path"] == row["object_id"]
        put(lake, tmp_path / "shots", three=(250, 4, 4))
        lake.run()
        assert set(looked_for(lake, "red")) == {"one", "three"}
        assert not lake.pending()


def test_a_model_for_pictures_comes_later_by_a_replay_and_goes_again(engine: None, tmp_path: Path) -> None:
    with lake_at(tmp_path / "lake", PLAIN) as lake:
        put(lake, tmp_path / "shots", one=(250, 5, 5), two=(5, 5, 250))
        lake.run()
        lake.close()
    (tmp_path / "lake" / FILE_NAME).write_text(CLIP, encoding="utf-8")
    with lakes.open(tmp_path / "lake") as lake:
        assert not lake.pending()
        quote = lake.models.quote("picture", "cheap_models:CheapClip")
        assert (quote.objects, quote.calls, quote.vectors) == (2, 2, 2)
        assert lake.models.replay("picture", "cheap_models:CheapClip").finished
        assert lake.models.book().find("picture", "cheap-clip 1").state is State.STANDBY
        assert looked_for(lake, "red") == []
        lake.models.activate("picture", "cheap-clip 1")
        assert looked_for(lake, "red") == ["one"]
        put(lake, tmp_path / "shots", three=(250, 4, 4))
        lake.run()
        assert set(looked_for(lake, "red")) == {"one", "three"}
        assert lake.sql("select count(*) as n from embeddings where text = ''")["rows"] == [{"n": 3}]


@pytest.mark.parametrize("name", ["cheap_models:CheapReader", "lexical"])
def test_a_model_that_places_no_pictures_is_refused(name: str, tmp_path: Path) -> None:
    from headwater.errors import InvalidRequest

    with lake_at(tmp_path / "lake", PLAIN) as lake, pytest.raises(InvalidRequest, match="vector of picture"):
        lake.models.quote("picture", name)
