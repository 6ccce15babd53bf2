"""What belongs to a lake is never put: not into itself, not under another customer's name, not by way of a link."""

from collections.abc import Callable
from pathlib import Path

import pytest
from calling import Answer, answer

from headwater.cli.main import main
from headwater.errors import InvalidRequest


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake's directory with recordings, with another lake in it, and the raw objects of a third that lies beside."""
    place = tmp_path / "place"
    other = place / "archive" / "other"
    beside = tmp_path / "beside"
    for lake in (place, other, beside):
        assert main(["init", str(lake)]) == 0
    with (beside / "headwater.toml").open("a") as file:
        file.write(f'\n[raw]\nuri = "{place}/a-store"\n')
    with (other / "headwater.toml").open("a") as file:
        file.write(f'\n[raw]\nuri = "{place}/archive/a-raw"\n')
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first.wav").write_bytes(b"RIFF first")
    for lake in (place, other, beside):
        assert main(["put", "first.wav", "--customer", "acme", "--lake", str(lake)]) == 0
    (place / "calls").mkdir()
    (place / "calls" / "new.wav").write_bytes(b"RIFF new")
    return place


@pytest.fixture
def put(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    return lambda lake, *what: answer(capsys, "put", *what, "--customer", "globex", "--json", "--lake", lake)


def stored(told: Answer) -> list[str]:
    return [Path(result["source"]).name for result in told.json["results"] if not result["error"]]


@pytest.mark.parametrize("what", [".", "**/*.wav", "**", "*"])
def test_of_a_directory_with_lakes_only_what_is_no_part_of_them_is_put(
    place: Path, put: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(place)
    told = put(place.parent / "beside", what)
    assert (told.code, stored(told)) == (0, ["new.wav"])
    reasons = " ".join(found["reason"] for found in told.json["skipped"])
    assert "a part of the lake in" in reasons and str(place / "archive" / "other") in reasons
    assert put(place, what, "--customer", "acme").json["summary"]["failed"] == 0


@pytest.mark.parametrize("what", ["raw", "raw/audio", "raw/audio/**/*.wav", "headwater.toml", "a-store", "catalog.db"])
def test_a_part_of_a_lake_that_is_named_is_refused(place: Path, put: Callable[..., Answer], what: str) -> None:
    told = put(place.parent / "beside", place / what)
    assert told.code == InvalidRequest.exit_code and not stored(told)
    assert "part of the lake in" in told.json["results"][0]["error"]["message"]
    (named,) = (path for path in (place / "raw").rglob("first.wav"))
    assert put(place.parent / "beside", named).code == InvalidRequest.exit_code


def test_a_link_to_a_lake_s_part_leads_nowhere(place: Path, put: Callable[..., Answer]) -> None:
    inbox = place.parent / "inbox"
    inbox.mkdir()
    (inbox / "linked").symlink_to(place / "raw")
    told = put(place, inbox, "--follow-links")
    assert (told.code, stored(told)) == (0, [])
    assert put(place, inbox / "linked").code == InvalidRequest.exit_code


def test_a_lake_whose_settings_cannot_be_read_is_left_out_all_the_same(place: Path, put: Callable[..., Answer]) -> None:
    (place / "archive" / "other" / "headwater.toml").write_text("no = [toml")
    (place / "archive" / "a-raw").rename(place / "archive" / "other" / "raw")
    assert stored(put(place.parent / "beside", place)) == ["new.wav"]


def test_a_folder_that_cannot_be_read_is_a_failure_also_where_it_is_all_that_was_named(
    place: Path, put: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.flow.sources import Source

    def refuse(source: Source, *, hidden: bool = False) -> None:
        raise InvalidRequest(f"{source.path} cannot be read: Permission denied. Check its permissions.")

    monkeypatch.setattr(Source, "list_folder", refuse)
    for what in (place / "calls", f"{place}/calls/*.wav", f"{place}/*/*.wav"):
        told = put(place.parent / "beside", what)
        assert (told.code, told.json["summary"]["failed"]) == (2, 1), what
