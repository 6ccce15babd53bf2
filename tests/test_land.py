"""Land: bytes first, then the event; the same file twice is one; a result only once its event is out."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

import pytest

from headwater import lake as lakes
from headwater.domain.event import Event
from headwater.domain.modality import Modality
from headwater.errors import Conflict, HeadwaterError, InvalidRequest, NotFound, Unavailable
from headwater.flow.land import expand, find_orphans, land_file, land_many, land_stream
from headwater.flow.land_text import TEXT_BYTES_MAX, land_text
from headwater.flow.landed import BATCH_EVENTS, Landed
from headwater.flow.store_file import UnsupportedKind
from headwater.storage.log.directory_log import DirectoryLog
from headwater.storage.raw.directory_store import DirectoryRawStore

AT = datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)


@pytest.fixture
def raw(tmp_path: Path) -> DirectoryRawStore:
    return DirectoryRawStore(tmp_path / "raw")


@pytest.fixture
def log(tmp_path: Path) -> DirectoryLog:
    return DirectoryLog(tmp_path / "log", 48)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


def _file(inbox: Path, name: str, data: bytes = b"RIFF") -> Path:
    path = inbox / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (AT.timestamp(), AT.timestamp()))
    return path


def _events(log: DirectoryLog) -> list[Event]:
    return [Event.from_dict(json.loads(line.value)) for line in log.read(0, 0, 1_000_000)]


def test_a_file_is_stored_under_its_customer_and_day_and_announced(
    raw: DirectoryRawStore, log: DirectoryLog, inbox: Path
) -> None:
    landed = land_file(raw, log, _file(inbox, "call.wav"), "acme")
    (event,) = _events(log)
    assert landed.event == event
    assert (landed.status, landed.source) == ("stored", str(inbox / "call.wav"))
    assert event.event_id == event.object_id == "audio/acme/2026-01-31/call.wav"
    assert (event.modality, event.customer, event.text) == (Modality.AUDIO, "acme", None)
    assert event.occurred_at == AT.replace(microsecond=123_000)
    assert raw.get(event.pointer) == b"RIFF"


def test_the_same_file_twice_is_the_same_event(raw: DirectoryRawStore, log: DirectoryLog, inbox: Path) -> None:
    path = _file(inbox, "call.wav")
    assert [land_file(raw, log, path, "acme").status for _ in range(2)] == ["stored", "already there"]
    first, second = _events(log)
    assert first == second
    assert len(list(raw.list())) == 1


def test_other_bytes_under_a_known_name_are_refused_and_announced_only_under_an_id(
    raw: DirectoryRawStore, log: DirectoryLog, inbox: Path
) -> None:
    land_file(raw, log, _file(inbox, "call.wav", b"one"), "acme")
    other = _file(inbox, "again/call.wav", b"two")
    with pytest.raises(Conflict, match="--id"):
        land_file(raw, log, other, "acme")
    assert len(_events(log)) == 1
    event = land_file(raw, log, other, "acme", event_id="call 2").event
    assert event is not None
    assert (event.event_id, event.object_id) == ("call 2", "audio/acme/2026-01-31/call%202.wav")


def test_a_time_that_is_told_wins_over_the_file_s(raw: DirectoryRawStore, log: DirectoryLog, inbox: Path) -> None:
    event = land_file(raw, log, _file(inbox, "a.PNG"), "acme", at=datetime(2025, 5, 6, 23)).event  # noqa: DTZ001
    assert event is not None
    assert event.object_id == "images/acme/2025-05-06/a.PNG"
    assert event.occurred_at == datetime(2025, 5, 6, 23, tzinfo=UTC)


def test_a_stream_lands_like_a_file(raw: DirectoryRawStore, log: DirectoryLog) -> None:
    event = land_stream(raw, log, BytesIO(b"%PDF"), "terms.pdf", "acme", at=AT).event
    assert event is not None
    assert event.object_id == "documents/acme/2026-01-31/terms.pdf"
    assert raw.get(event.pointer) == b"%PDF"


def test_chat_travels_inline_without_a_raw_object(raw: DirectoryRawStore, log: DirectoryLog) -> None:
    text = "Grüß Gott,\nit fails 😀"
    landed = land_text(log, text, "acme", event_id="m1", at=AT)
    (event,) = _events(log)
    assert landed.event == event
    assert (event.text, event.object_id, event.modality) == (text, "chat/acme/m1", Modality.CHAT)
    assert event.pointer.checksum == hashlib.sha256(text.encode()).hexdigest()
    assert list(raw.list()) == []


def test_chat_without_an_id_is_a_new_message_each_time(log: DirectoryLog) -> None:
    for _ in range(2):
        land_text(log, "hello", "acme", at=AT)
    assert len({event.event_id for event in _events(log)}) == 2


@pytest.mark.parametrize("text", ["", "  \n", "\ud800", "x" * (TEXT_BYTES_MAX + 1)])
def test_text_that_cannot_be_a_message_is_refused(log: DirectoryLog, text: str) -> None:
    with pytest.raises(InvalidRequest):
        land_text(log, text, "acme", at=AT)
    assert log.end() == {0: 0}


@pytest.mark.parametrize("customer", ["../../etc", "", "a/b", "\x00", "x" * 4096])
def test_a_customer_that_leads_astray_is_refused_before_anything_is_written(
    raw: DirectoryRawStore, log: DirectoryLog, inbox: Path, customer: str
) -> None:
    with pytest.raises(InvalidRequest):
        land_file(raw, log, _file(inbox, "a.wav"), customer)
    with pytest.raises(InvalidRequest):
        land_text(log, "hello", customer, at=AT)
    assert log.end() == {0: 0}
    assert list(raw.list()) == []


def test_many_files_give_one_result_each_in_order_and_a_bad_one_costs_only_itself(
    raw: DirectoryRawStore, log: DirectoryLog, inbox: Path
) -> None:
    _file(inbox, "a.wav", b"a")
    _file(inbox, "b.exe")
    _file(inbox, "deep/a.wav", b"another")
    _file(inbox, "deep/c.png")
    os.mkfifo(inbox / "pipe.wav")
    named = [inbox, _file(inbox.parent / "more", "a.wav", b"more"), inbox / "gone.wav", f"{inbox}/*.flac"]
    results = list(land_many(raw, log, named, "acme"))
    kinds = [(Path(result.source).name, result.status, type(result.error)) for result in results]
    assert kinds == [
        ("a.wav", "stored", type(None)),
        ("b.exe", "failed", UnsupportedKind),
        ("pipe.wav", "failed", InvalidRequest),
        ("a.wav", "stored", type(None)),
        ("c.png", "stored", type(None)),
        ("a.wav", "failed", Conflict),
        ("gone.wav", "failed", NotFound),
        ("*.flac", "failed", NotFound),
    ]
    assert [event.object_id for event in _events(log)][1] == "audio/acme/2026-01-31/deep/a.wav"
    assert len(_events(log)) == 3


def test_of_files_with_one_name_the_first_is_kept(raw: DirectoryRawStore, log: DirectoryLog, inbox: Path) -> None:
    named = [_file(inbox, f"{number:02}/call.wav", b"%d" % number * 100_000) for number in range(20)]
    results = list(land_many(raw, log, named, "acme"))
    assert [result.status for result in results] == ["stored"] + ["failed"] * 19
    assert b"".join(raw.chunks("audio/acme/2026-01-31/call.wav"))[:1] == b"0"


class _CountingLog(DirectoryLog):
    publishes = 0

    def publish(self, events: Sequence[Event]) -> None:
        self.publishes += bool(events)
        super().publish(events)


def test_many_files_are_published_in_batches_and_never_told_before(
    raw: DirectoryRawStore, tmp_path: Path, inbox: Path
) -> None:
    log = _CountingLog(tmp_path / "log", 48)
    for number in range(BATCH_EVENTS + 10):
        _file(inbox, f"{number:04}.wav", b"%d" % number)
    told = 0
    for result in land_many(raw, log, [inbox], "acme", clock=lambda: AT):
        told += 1
        assert result.status == "stored"
        assert log.end()[0] >= told
    assert told == BATCH_EVENTS + 10
    assert log.publishes == 2


def test_a_slow_stream_of_files_does_not_wait_for_a_full_batch(
    raw: DirectoryRawStore, tmp_path: Path, inbox: Path
) -> None:
    log = _CountingLog(tmp_path / "log", 48)
    for number in range(40):
        _file(inbox, f"{number}.wav", b"%d" % number)
    ticks = iter(AT + timedelta(seconds=0.6 * tick) for tick in range(1000))
    assert len(list(land_many(raw, log, [inbox], "acme", clock=lambda: next(ticks)))) == 40
    assert log.publishes > 5


def test_a_caller_that_stops_listening_leaves_no_orphans(
    raw: DirectoryRawStore, log: DirectoryLog, inbox: Path
) -> None:
    for number in range(40):
        _file(inbox, f"{number}.wav", b"%d" % number)
    ticks = iter(AT + timedelta(seconds=0.6 * tick) for tick in range(100))
    results = land_many(raw, log, [inbox], "acme", clock=lambda: next(ticks))
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert {event.object_id for event in _events(log)} == {found.path for found in raw.list()}


def test_a_log_that_fails_is_the_failure_of_every_file_it_should_have_announced(
    raw: DirectoryRawStore, tmp_path: Path, inbox: Path
) -> None:
    _file(inbox, "a.wav")
    _file(inbox, "b.exe")
    (tmp_path / "log").write_text("a file where the log should be")
    results = list(land_many(raw, DirectoryLog(tmp_path / "log", 48), [inbox], "acme"))
    assert [type(result.error) for result in results] == [Unavailable, UnsupportedKind]
    assert all(result.event is None for result in results)


def test_an_id_for_several_files_is_refused(raw: DirectoryRawStore, log: DirectoryLog, inbox: Path) -> None:
    _file(inbox, "a.wav")
    _file(inbox, "b.wav")
    with pytest.raises(InvalidRequest, match="--id"):
        list(land_many(raw, log, [inbox], "acme", event_id="x"))
    (only,) = land_many(raw, log, [inbox / "a.wav"], "acme", event_id="x")
    assert only.event is not None
    assert only.event.event_id == "x"


def test_directories_and_globs_are_expanded_without_what_is_hidden(inbox: Path) -> None:
    for name in ("a.wav", "b.png", ".hidden.wav", ".git/c.wav", "deep/er/d.wav", "[e].wav"):
        _file(inbox, name)

    def names(*patterns: str | Path) -> list[str]:
        return [str(source.path.relative_to(inbox)) for source in expand(patterns)]

    assert names(inbox) == ["[e].wav", "a.wav", "b.png", "deep/er/d.wav"]
    assert names(f"{inbox}/*.wav") == ["[e].wav", "a.wav"]
    assert names(f"{inbox}/**/*.wav") == ["[e].wav", "a.wav", "deep/er/d.wav"]
    assert names(f"{inbox}/d*") == ["deep/er/d.wav"]
    assert names(inbox / ".hidden.wav", inbox / "[e].wav") == [".hidden.wav", "[e].wav"]
    assert names(inbox / "a.wav", inbox, f"{inbox}/a*") == ["a.wav", "[e].wav", "b.png", "deep/er/d.wav"]


_LANDER = """
import sys
from pathlib import Path
from headwater.flow.land import land_many
from headwater.storage.log.directory_log import DirectoryLog
from headwater.storage.raw.directory_store import DirectoryRawStore
lake = Path(sys.argv[1])
for landed in land_many(DirectoryRawStore(lake / "raw"), DirectoryLog(lake / "log", 48), [lake / "inbox"], "acme"):
    print(landed.event.object_id, flush=True)
"""


def _land_and_die(lake: Path, fault: str) -> list[str]:
    environment = {**os.environ, "HEADWATER_FAULT": fault}
    done = subprocess.run(
        [sys.executable, "-c", _LANDER, str(lake)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == -9, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("fault", ["land.stored:1", "land.stored:3", "log.written"])
def test_a_crash_leaves_orphans_that_are_found_and_never_an_event_without_bytes(
    raw: DirectoryRawStore, log: DirectoryLog, inbox: Path, tmp_path: Path, fault: str
) -> None:
    for number in range(4):
        _file(inbox, f"{number}.wav", b"%d" % number)
    assert _land_and_die(tmp_path, fault) == []
    assert _events(log) == []
    later = datetime.now(UTC) + timedelta(minutes=1)
    stored = {found.path for found in raw.list()}
    assert {orphan.path for orphan in find_orphans(raw, set(), stored_before=later)} == stored != set()
    assert list(find_orphans(raw, set(), stored_before=later - timedelta(hours=1))) == []
    statuses = [result.status for result in land_many(raw, log, [inbox], "acme")]
    assert statuses.count("already there") == len(stored)
    known = {event.object_id for event in _events(log)}
    assert list(find_orphans(raw, known, stored_before=later)) == []
    assert all(raw.get(event.pointer) for event in _events(log))


def test_a_name_that_is_not_unicode_is_refused_alone(raw: DirectoryRawStore, log: DirectoryLog, inbox: Path) -> None:
    shutil.copy(os.fsencode(_file(inbox, "a.wav")), os.fsencode(inbox) + b"/\xff.wav")
    results: list[Landed] = list(land_many(raw, log, [inbox], "acme"))
    assert sorted(result.status for result in results) == ["failed", "stored"]
    assert all(result.error is None or isinstance(result.error, HeadwaterError) for result in results)


def test_put_stores_when_it_is_called_and_raises_what_failed_when_all_else_is_stored(
    tmp_path: Path, inbox: Path
) -> None:
    for name in ("one.wav", "notes.xyz", "more.xyz", "two.wav"):
        _file(inbox, name, name.encode())
    with lakes.init(tmp_path / "lake") as lake:
        with pytest.raises(InvalidRequest, match=r"more\.xyz is not a kind") as failed:
            lake.put(inbox, customer="acme")
        assert failed.value.__notes__ == ["2 of 4 failed; collect=True returns every result."]
        assert lake.pending().bronze == 2
        results = lake.put(inbox, customer="acme", collect=True)
        assert [result.status for result in results] == ["failed", "failed", "already there", "already there"]
        assert lake.put_lines(["hello", "", "is anybody there?"], customer="acme")[1].source == "-:3"
        assert lake.pending().bronze == 6
        with pytest.raises(InvalidRequest, match="Line 1 is not UTF-8"):
            lake.put_lines([b"\xff", "but this is"], customer="acme")
        assert lake.pending().bronze == 7


def test_put_one_by_one_stores_what_is_asked_for(tmp_path: Path, inbox: Path) -> None:
    _file(inbox, "notes.xyz")
    _file(inbox, "one.wav")
    with lakes.init(tmp_path / "lake") as lake:
        results = lake.iter_put(inbox, customer="acme")
        assert lake.pending().bronze == 0
        assert [result.status for result in results] == ["failed", "stored"]
        assert lake.pending().bronze == 1
