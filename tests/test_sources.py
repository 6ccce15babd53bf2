"""What `put` takes: files that were named, and regular files below; never what a link among them leads to."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from calling import answer

from headwater.cli.main import main
from headwater.errors import InvalidRequest
from headwater.flow.land import land_many
from headwater.flow.sources import Skipped, Source, expand
from headwater.storage.log.directory_log import DirectoryLog
from headwater.storage.raw.directory_store import DirectoryRawStore

SECRET = b"a password"


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    """A file, one in a folder, and links of every kind to a secret outside."""
    inbox, outside = tmp_path / "inbox", tmp_path / "outside"
    (inbox / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.wav").write_bytes(SECRET)
    for name in ("a.wav", "deep/b.wav"):
        (inbox / name).write_bytes(name.encode())
    (inbox / "linked.wav").symlink_to(outside / "secret.wav")
    (inbox / "deep" / "also.wav").symlink_to("../linked.wav")
    (inbox / "folder").symlink_to(outside)
    (inbox / "gone.wav").symlink_to("nowhere")
    (inbox / "deep" / "up").symlink_to("..")
    return inbox


def put(tmp_path: Path, *patterns: Path | str, follow_links: bool = False) -> dict[str, str]:
    """By the end of each path, what became of it; and nothing but that is stored."""
    raw = DirectoryRawStore(tmp_path / "raw")
    log = DirectoryLog(tmp_path / "log", 48)
    results = list(land_many(raw, log, patterns, "acme", follow_links=follow_links))
    assert len(list(raw.list())) == len([result for result in results if result.event])
    return {os.path.relpath(result.source, tmp_path / "inbox"): result.status for result in results}


def stored(tmp_path: Path) -> set[bytes]:
    return {path.read_bytes() for path in (tmp_path / "raw").rglob("*.wav")}


def test_a_walk_takes_regular_files_and_tells_each_link_that_it_skips(tmp_path: Path, inbox: Path) -> None:
    assert put(tmp_path, inbox) == {
        "a.wav": "stored",
        "folder": "skipped",
        "gone.wav": "skipped",
        "linked.wav": "skipped",
        "deep/also.wav": "skipped",
        "deep/b.wav": "stored",
        "deep/up": "skipped",
    }
    assert stored(tmp_path) == {b"a.wav", b"deep/b.wav"}


def test_what_a_glob_finds_was_not_named_and_links_on_the_way_count_too(tmp_path: Path, inbox: Path) -> None:
    found = put(tmp_path, f"{inbox}/**/*.wav", f"{inbox}/fold*", f"{inbox}/*/secret.wav")
    assert {name for name, status in found.items() if status == "stored"} == {"a.wav", "deep/b.wav"}
    assert set(found.values()) == {"stored", "skipped"}
    assert "folder" in found
    assert stored(tmp_path) == {b"a.wav", b"deep/b.wav"}


def test_a_link_that_is_named_is_the_caller_s_own_word(tmp_path: Path, inbox: Path) -> None:
    assert put(tmp_path, inbox / "linked.wav", inbox / "folder") == {
        "linked.wav": "stored",
        "folder/secret.wav": "stored",
    }
    assert stored(tmp_path) == {SECRET}


def test_links_are_followed_where_that_is_asked_for_and_none_leads_round_and_round(tmp_path: Path, inbox: Path) -> None:
    found = put(tmp_path, inbox, follow_links=True)
    assert found == {
        "a.wav": "stored",
        "gone.wav": "failed",
        "linked.wav": "stored",
        "deep/also.wav": "stored",
        "deep/b.wav": "stored",
        "folder/secret.wav": "stored",
    }


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_becomes_a_link_between_the_look_and_the_opening_is_not_followed(
    tmp_path: Path, inbox: Path, what: str
) -> None:
    sources = {source.path.name: source for source in expand([inbox])}
    (tmp_path / "outside" / "b.wav").write_bytes(SECRET)
    if what == "file":
        (inbox / "deep" / "b.wav").unlink()
        (inbox / "deep" / "b.wav").symlink_to(tmp_path / "outside" / "b.wav")
    else:
        (inbox / "deep").rename(tmp_path / "moved")
        (inbox / "deep").symlink_to(tmp_path / "outside")
    with pytest.raises(Skipped):
        sources["b.wav"].open()


def test_a_folder_that_becomes_a_link_while_it_is_walked_is_not_entered(tmp_path: Path, inbox: Path) -> None:
    walk = expand([inbox])
    next(walk)
    (inbox / "deep").rename(tmp_path / "moved")
    (inbox / "deep").symlink_to(tmp_path / "outside")
    assert "secret.wav" not in {source.path.name for source in walk}


def test_a_device_and_a_process_s_own_files_are_not_taken_by_way_of_a_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, inbox = tmp_path / "lake", tmp_path / "inbox"
    main(["init", str(lake)])
    inbox.mkdir()
    (inbox / "x.wav").symlink_to("/proc/self/environ")
    (inbox / "y.wav").symlink_to("/dev/zero")
    told = answer(capsys, "put", inbox, "--customer", "acme", "--lake", lake, "--json")
    assert (told.code, told.json["summary"]) == (0, {"stored": 0, "already_there": 0, "failed": 0})
    assert [Path(found["source"]).name for found in told.json["skipped"]] == ["x.wav", "y.wav"]
    shown = answer(capsys, "put", inbox, "--customer", "acme", "--lake", lake).out
    assert "2 skipped" in shown and "--follow-links" in shown
    named = answer(capsys, "put", inbox / "y.wav", "--customer", "acme", "--lake", lake)
    assert named.code == 2 and "not a regular file" in named.out


@pytest.fixture
def open_inbox() -> Iterator[Path]:
    """Where others may look, but not into one folder. Pytest's own directories are closed to all of them."""
    with tempfile.TemporaryDirectory() as made:
        inbox = Path(made)
        inbox.chmod(0o755)
        for name in ("a", "closed", "z"):
            (inbox / name).mkdir()
            (inbox / name / f"{name}.wav").write_bytes(b"RIFF")
        (inbox / "closed").chmod(0)
        yield inbox
        (inbox / "closed").chmod(0o755)


@pytest.fixture
def not_root() -> Iterator[None]:
    """Root may read everything."""
    before = os.geteuid()
    os.seteuid(65534 if before == 0 else before)
    yield
    os.seteuid(before)


def test_a_folder_that_cannot_be_read_is_a_failure_and_the_others_are_taken(open_inbox: Path, not_root: None) -> None:
    found = {source.path.name: source for source in expand([open_inbox])}
    assert list(found) == ["a.wav", "closed", "z.wav"]
    with pytest.raises(InvalidRequest, match="permissions"):
        found["closed"].open()
    found["z.wav"].open().close()


@pytest.mark.parametrize("glob", ["**/*.wav", "*/*.wav", "**", "**/*", "*", "[!x]*/?.wav", "**/z.wav", "*/z.wav"])
def test_a_folder_that_a_glob_cannot_look_into_is_a_failure_and_the_others_are_taken(
    open_inbox: Path, not_root: None, glob: str
) -> None:
    found = {source.path.name: source for source in expand([f"{open_inbox}/{glob}"])}
    assert set(found) == ({"closed", "z.wav"} if "z" in glob else {"a.wav", "closed", "z.wav"})
    with pytest.raises(InvalidRequest, match="permissions"):
        found["closed"].open()
    found["z.wav"].open().close()


def test_a_folder_that_is_no_match_may_be_closed(open_inbox: Path, not_root: None) -> None:
    assert [source.path.name for source in expand([f"{open_inbox}/[az]/*.wav"])] == ["a.wav", "z.wav"]
    (named,) = expand([f"{open_inbox}/closed/*.wav"])
    with pytest.raises(InvalidRequest, match="permissions"):
        named.open()


@pytest.mark.parametrize(
    ("glob", "wanted"),
    [
        ("*.wav", ["a.wav", "b.wav"]),
        ("?.[vw]*", ["a.wav", "b.wav"]),
        ("*", ["a.wav", "b.wav", "one/a.wav", "one/two/c.wav"]),
        ("*/", ["one/a.wav", "one/two/c.wav"]),
        ("**", ["a.wav", "b.wav", "one/a.wav", "one/two/c.wav"]),
        ("**/a.wav", ["a.wav", "one/a.wav"]),
        ("**/**/c*", ["one/two/c.wav"]),
        ("one/**/*.wav", ["one/a.wav", "one/two/c.wav"]),
        ("**/tw*", ["one/two/c.wav"]),
        ("*/two/c.wav", ["one/two/c.wav"]),
        (".*", [".hidden.wav"]),
        ("[[]odd]", ["[odd]"]),
        ("*/../b.wav", ["one/../b.wav"]),
        ("**/empty", []),
        ("**/nothing", ["**/nothing"]),
        ("a.wav/*", ["a.wav/*"]),
    ],
)
def test_a_glob_finds_what_a_shell_would_find(tmp_path: Path, glob: str, wanted: list[str]) -> None:
    for name in ("a.wav", "b.wav", ".hidden.wav", "one/a.wav", "one/two/c.wav", "one/.git/d.wav"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    if "odd" in glob:
        (tmp_path / "[odd]").touch()
    if "empty" in glob:
        (tmp_path / "one" / "empty").mkdir()
    found = [str(source.path.relative_to(tmp_path)) for source in expand([f"{tmp_path}/{glob}"])]
    assert found == wanted


def test_a_folder_that_cannot_be_read_makes_the_exit_code(
    tmp_path: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["init", str(tmp_path / "lake")])
    list_folder = Source.list_folder

    def refuse(source: Source) -> Any:
        if source.path.name == "deep":
            raise InvalidRequest("deep cannot be read: Permission denied. Check its permissions.")
        return list_folder(source)

    monkeypatch.setattr(Source, "list_folder", refuse)
    told = answer(capsys, "put", inbox, "--customer", "acme", "--lake", tmp_path / "lake", "--json")
    assert (told.code, told.json["summary"]) == (2, {"stored": 1, "already_there": 0, "failed": 1})
    (failed,) = [result for result in told.json["results"] if result["error"]]
    assert Path(failed["source"]).name == "deep" and "Permission denied" in failed["error"]["message"]


def test_a_tree_deeper_than_any_path_may_be_long_is_walked_to_its_end(tmp_path: Path) -> None:
    depth = 60
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 100, dir_fd=folder)
        inner = os.open("d" * 100, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("last.wav", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    for pattern in (tmp_path, f"{tmp_path}/**/*.wav"):
        (source,) = expand([pattern])
        assert (source.path.name, len(source.parts)) == ("last.wav", depth + 1)
        source.open().close()
