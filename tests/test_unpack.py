"""Archives and e-mails are opened where they are put: what is in them are objects of their own, within limits."""

import json
import stat
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import written
from waiting import let_pass

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.errors import InvalidRequest
from headwater.flow.landed import Landed
from headwater.flow.sources import Source
from headwater.flow.unpack.child import FILES_MAX
from headwater.flow.unpack.unpacker import Unpacker
from headwater.lake import Lake

AT = "2026-03-02T10:00:00Z"
TEXT = b"a note"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lakes.init(tmp_path / "lake").close()
    with lakes.open(tmp_path / "lake", {"limits.object_mb": 1}) as lake:
        yield lake


def put(lake: Lake, path: Path, **about: str) -> dict[str, Landed]:
    """By its path in the raw store; what failed by its error, what was skipped by its place in the directory."""
    found = {}
    for one in lake.iter_put(path, customer="acme", at=AT, **about):
        place = str(Path(one.source).relative_to(path.parent))
        found[one.event.pointer.path if one.event else str(one.error or place)] = one
    return found


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return path


def test_files_of_an_archive_are_objects_below_its_name_and_twice_is_once(lake: Lake, tmp_path: Path) -> None:
    inner = archive(tmp_path / "inner.zip", {"deep.md": TEXT}).read_bytes()
    members = {"a.txt": TEXT, "Übung/b.html": b"<p>hi", "in.zip": inner, ".DS_Store": b"x", "__MACOSX/a.txt": b"x"}
    path = archive(tmp_path / "export.zip", members)
    stored = put(lake, path)
    folder = "documents/acme/2026-03-02/export.zip"
    assert set(stored) == {f"{folder}/a.txt", f"{folder}/%C3%9Cbung/b.html", f"{folder}/in.zip/deep.md"}
    assert {one.status for one in stored.values()} == {"stored"}
    assert {json.dumps(one.event.meta) for one in stored.values() if one.event} == {'{"part_of": "export.zip"}'}
    assert (tmp_path / "lake" / "raw" / folder / "in.zip" / "deep.md").read_bytes() == TEXT
    assert {one.status for one in put(lake, path).values()} == {"already there"}


def test_an_e_mail_is_an_object_and_so_is_each_attachment_that_is_of_a_kind_that_is_taken(
    lake: Lake, tmp_path: Path
) -> None:
    attached = {"offer.pdf": b"%PDF-1", "../../offer.pdf": b"%PDF-2", "invite.ics": b"BEGIN"}
    (tmp_path / "mail.eml").write_bytes(written.mail(attached=attached))
    found = put(lake, tmp_path / "mail.eml", id="ticket-1")
    day = "documents/acme/2026-03-02"
    assert {name: one.status for name, one in found.items()} == {
        f"{day}/ticket-1.eml": "stored",
        f"{day}/mail.eml.parts/offer.pdf": "stored",
        f"{day}/mail.eml.parts/2%20offer.pdf": "stored",
        "mail.eml.parts/invite.ics": "skipped",
    }
    events = [one.event for one in found.values() if one.event]
    assert [event.meta for event in events] == [None, *[{"part_of": "mail.eml"}] * 2]
    assert len({event.event_id for event in events}) == 3


def test_what_would_lead_out_of_an_archive_or_is_a_link_or_locked_costs_itself_alone(
    lake: Lake, tmp_path: Path
) -> None:
    names = ("../out.txt", "/etc/out.txt", "C:/out.txt", "ok.txt")
    path = archive(tmp_path / "bad.zip", dict.fromkeys(names, TEXT))
    with zipfile.ZipFile(path, "a") as packed:
        link = zipfile.ZipInfo("link.txt")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(link, "/etc/passwd")
    data = path.read_bytes()
    found = put(lake, path)
    assert [name for name, one in found.items() if one.status == "stored"] == [
        "documents/acme/2026-03-02/bad.zip/ok.txt"
    ]
    errors = [str(one.error) for one in found.values() if one.error]
    assert (
        sum("leads out of it" in error for error in errors) == 3 and sum("is a link" in error for error in errors) == 1
    )
    assert not list(tmp_path.rglob("out.txt"))

    locked = bytearray(data)
    at = locked.index(b"PK\x01\x02")
    locked[at + 8] |= 1
    (tmp_path / "locked.zip").write_bytes(locked)
    errors = [str(one.error) for one in put(lake, tmp_path / "locked.zip").values() if one.error]
    assert len(errors) == 4, "the first was outside, and is told as that"


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({f"{number}.txt": b"" for number in range(FILES_MAX + 1)}, "more than 10,000 files"),
        ({"bomb.txt": bytes(40 << 20)}, "more than may be unpacked"),
        ({f"{number}.txt": bytes(1 << 20) for number in range(6)}, "more than may be unpacked"),
    ],
)
def test_an_archive_that_unpacks_to_too_much_is_told(
    lake: Lake, tmp_path: Path, members: dict[str, bytes], reason: str
) -> None:
    found = put(lake, archive(tmp_path / "big.zip", members))
    errors = [str(one.error) for one in found.values() if one.error]
    assert errors and all(reason in error for error in errors)
    assert sum(one.event.pointer.size for one in found.values() if one.event) <= 4 << 20


def test_archives_in_archives_end_at_the_second(lake: Lake, tmp_path: Path) -> None:
    data = TEXT
    for depth in range(3):
        name = "a.txt" if depth == 0 else f"{depth}.zip"
        data = archive(tmp_path / "now.zip", {name: data}).read_bytes()
    (found,) = put(lake, tmp_path / "now.zip").values()
    assert "more than 2 archives deep" in str(found.error)


def test_a_broken_archive_is_one_failure_and_the_next_file_goes_on(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "a.zip").write_bytes(b"PK\x03\x04 no archive")
    (inbox / "b.eml").write_bytes(b"no e-mail")
    archive(inbox / "c.zip", {"c.txt": TEXT})
    code = main(["--lake", str(lake.settings.lake), "--json", "put", str(inbox), "--customer", "acme"])
    told = json.loads(capsys.readouterr().out)
    assert code == InvalidRequest.exit_code
    assert told["summary"] == {"stored": 2, "already_there": 0, "failed": 1}
    (failed,) = (result for result in told["results"] if result["error"])
    assert failed["source"].endswith("a.zip") and "cannot be unpacked" in failed["error"]["message"]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_file_of_an_archive_costs_itself_alone(lake: Lake, tmp_path: Path, method: int) -> None:
    path = tmp_path / "half.zip"
    with zipfile.ZipFile(path, "w", method) as packed:
        packed.writestr("bad.txt", TEXT * 100)
        start = packed.getinfo("bad.txt").header_offset + 30 + len("bad.txt")
        packed.writestr("good.txt", TEXT)
        length = packed.getinfo("bad.txt").compress_size
    data = bytearray(path.read_bytes())
    data[start + 9 : start + length] = b"\xff" * (length - 9)
    path.write_bytes(data)
    stored = put(lake, path)
    assert "documents/acme/2026-03-02/half.zip/good.txt" in stored
    (failed,) = (one for one in stored.values() if one.error)
    assert failed.source.endswith("bad.txt") and "cannot be unpacked" in str(failed.error)


def test_an_id_is_not_for_an_archive(lake: Lake, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", {"a.txt": TEXT})
    (found,) = put(lake, path, id="one").values()
    assert "an archive holds many" in str(found.error)


def test_nothing_is_left_behind_of_what_was_unpacked(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    for number in range(4):
        archive(tmp_path / f"{number}.zip", {f"{each}.txt": TEXT for each in range(20)})
    results = list(lake.iter_put(*(tmp_path / f"{number}.zip" for number in range(4)), customer="acme", at=AT))
    assert len(results) == 80 and all(one.event for one in results)
    assert list(scratch.iterdir()) == []
    listening = lake.iter_put(tmp_path / "0.zip", customer="other", at=AT)
    next(listening)
    listening.close()
    assert list(scratch.iterdir()) == []


def test_a_child_that_took_too_long_is_gone_before_the_next_container(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", {"a.txt": TEXT})
    with ExitStack() as held:
        unpacker = Unpacker(child_mb=512, object_mb=1, seconds=0.0)
        child = unpacker._started(held)
        for source in unpacker._members(child, Source(str(path)), ".zip", tmp_path):
            assert "takes longer" in str(source.error) and not child.is_alive


class OneByOne:
    """A child that has one message at a time, each once it is asked for, as one does whose pipe is full."""

    def __init__(self, messages: list[dict[str, object]]) -> None:
        self.messages = messages

    def receive(self, deadline: float) -> bytes | None:
        return b"1" if time.monotonic() < deadline else None

    def unpack(self, data: bytes) -> list[dict[str, object]]:
        return [self.messages.pop(0)]


def test_the_time_that_storing_takes_is_no_time_of_unpacking() -> None:
    unpacker = Unpacker(child_mb=512, object_mb=1, seconds=0.2)
    messages: list[dict[str, object]] = [{"names": ["a.txt"]}, {"names": ["b.txt"]}, {"done": True}]
    told = unpacker._told(OneByOne(messages))  # type: ignore[arg-type]
    assert next(told) == {"names": ["a.txt"]}
    let_pass(0.3, "the first is stored for longer than unpacking may take: longer is no harm")
    assert list(told) == [{"names": ["b.txt"]}]
