"""Pointer log: durable, dense, in order; many writer processes; nothing unread is ever expired."""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headwater.domain.event import Event
from headwater.domain.modality import Modality
from headwater.domain.pointer import Pointer
from headwater.errors import DataFault, InvalidRequest, NotFound, Unavailable
from headwater.settings import resolve
from headwater.storage.directory_log import SEGMENT_BYTES, DirectoryLog
from headwater.storage.pointer_log import open_pointer_log

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
RETENTION_HOURS = 48
DEAD = timedelta(hours=RETENTION_HOURS, seconds=1)


def _event(number: int, text: str = "hello") -> Event:
    pointer = Pointer(f"chat/acme/{number}", len(text), "text/plain", "0" * 64)
    return Event(str(number), Modality.CHAT, "acme", pointer, START, text)


def _open(directory: Path, now: datetime = START) -> DirectoryLog:
    return DirectoryLog(directory, RETENTION_HOURS, lambda: now)


@pytest.fixture
def log(tmp_path: Path) -> DirectoryLog:
    return _open(tmp_path / "log")


def _ids(log: DirectoryLog, offset: int = 0, limit: int = 1_000_000) -> list[str]:
    return [json.loads(line.value)["event_id"] for line in log.read(0, offset, limit)]


def test_an_empty_log_begins_and_ends_at_zero(log: DirectoryLog) -> None:
    log.publish([])
    assert log.begin() == log.end() == {0: 0}
    assert log.read(0, 0, 10) == []


def test_what_was_published_is_read_back_in_order_by_another_process_s_view(log: DirectoryLog) -> None:
    log.publish([_event(0), _event(1)])
    log.publish([_event(2, 'quotes " and \u2028 and \n newlines \r 😀')])
    other = _open(log.directory)
    lines = other.read(0, 0, 10)
    assert [line.offset for line in lines] == [0, 1, 2]
    assert Event.from_dict(json.loads(lines[0].value)) == _event(0)
    assert json.loads(lines[2].value)["text"] == 'quotes " and \u2028 and \n newlines \r 😀'
    assert lines[0].published_at == START
    assert other.end() == {0: 3}


@pytest.mark.parametrize("offset, limit, ids", [(0, 2, ["0", "1"]), (1, 3, ["1", "2", "3"]), (4, 9, ["4"]), (5, 9, [])])
def test_reading_starts_anywhere_and_stops_at_its_limit(
    log: DirectoryLog, offset: int, limit: int, ids: list[str]
) -> None:
    for first in (0, 2):
        log.publish([_event(first), _event(first + 1)])
    log.publish([_event(4)])
    assert _ids(log, offset, limit) == ids


def test_a_reader_sees_what_is_published_after_it_looked(log: DirectoryLog) -> None:
    reader = _open(log.directory)
    for number in range(3):
        log.publish([_event(number)])
        assert _ids(reader, number) == [str(number)]


def test_a_large_publish_is_cut_into_segments_that_stay_dense(log: DirectoryLog) -> None:
    log.publish([_event(number, "x" * 40_000) for number in range(100)])
    segments = sorted(log.directory.glob("*.jsonl"))
    assert len(segments) == 4
    assert all(segment.stat().st_size <= SEGMENT_BYTES * 1.05 for segment in segments)
    assert [line.offset for line in log.read(0, 0, 1000)] == list(range(100))


def test_a_segment_is_plain_json_lines_and_nothing_else_is_visible(log: DirectoryLog) -> None:
    log.publish([_event(0), _event(1)])
    (segment,) = [path for path in log.directory.iterdir() if not path.name.startswith((".", "_"))]
    assert segment.name == "00000000000000000000-000002.jsonl"
    first = json.loads(segment.read_text().splitlines()[0])
    assert first == {"offset": 0, "published_at": "2026-01-31T12:00:00.000Z", "event": _event(0).to_dict()}


def test_a_line_that_is_no_event_travels_as_it_was_sent(log: DirectoryLog) -> None:
    log.publish_raw(["{not json", "\x00\ud83d", ""])
    assert [line.value for line in log.read(0, 0, 10)] == ["{not json", "\x00\ud83d", ""]


def test_text_that_is_not_unicode_is_refused_and_nothing_is_published(log: DirectoryLog) -> None:
    with pytest.raises(InvalidRequest):
        log.publish([_event(0), _event(1, "\ud800")])
    assert log.end() == {0: 0}


def test_expiry_removes_what_is_old_and_read_and_keeps_the_rest(log: DirectoryLog) -> None:
    for number in range(4):
        _open(log.directory, START + timedelta(hours=number)).publish([_event(number)])
    expired = log.expire(START + timedelta(hours=2) + DEAD, {0: 2})
    assert (expired.removed_events, expired.overdue_events) == (2, 1)
    assert (log.begin(), log.end()) == ({0: 2}, {0: 4})
    assert _ids(log, 2) == ["2", "3"]
    with pytest.raises(NotFound, match="begins at 2"):
        log.read(0, 1, 10)
    assert log.expire(START + timedelta(hours=2) + DEAD, {0: 2}).removed_events == 0


def test_nothing_unread_expires_unless_forced(log: DirectoryLog) -> None:
    log.publish([_event(0), _event(1)])
    assert log.expire(START + DEAD, {}).overdue_events == 2
    assert log.expire(START + DEAD, {0: 1}).removed_events == 0
    assert _ids(log) == ["0", "1"]
    assert log.expire(START + DEAD, {}, force=True).removed_events == 2


@pytest.mark.parametrize("lost", [[], [".next"]])
def test_offsets_are_never_used_again_even_when_everything_expired(log: DirectoryLog, lost: list[str]) -> None:
    log.publish([_event(number) for number in range(5)])
    log.expire(START + DEAD, {0: 5})
    for name in lost:
        (log.directory / name).unlink()
    assert list(log.directory.glob("*.jsonl")) == []
    assert log.begin() == log.end() == {0: 5}
    with pytest.raises(NotFound):
        log.read(0, 0, 1)
    _open(log.directory).publish([_event(5)])
    assert [line.offset for line in log.read(0, 5, 10)] == [5]


@pytest.mark.parametrize("hint", [b"", b"{", b"[]", b'{"base":0,"count":1,"place":"another boot"}', b'{"base":"x"}'])
def test_a_lost_or_foreign_hint_costs_a_listing_and_nothing_else(log: DirectoryLog, hint: bytes) -> None:
    log.publish([_event(0), _event(1)])
    log.publish([_event(2)])
    (log.directory / ".next").write_bytes(hint)
    assert log.end() == {0: 3}
    log.publish([_event(3)])
    assert _ids(log) == ["0", "1", "2", "3"]


def test_a_copied_log_does_not_believe_the_original_s_hint(log: DirectoryLog, tmp_path: Path) -> None:
    log.publish([_event(0)])
    stale = (log.directory / ".next").read_bytes()
    log.publish([_event(1)])
    copy = tmp_path / "copy"
    shutil.copytree(log.directory, copy)
    (copy / ".next").write_bytes(stale)
    assert _open(copy).end() == {0: 2}


def test_a_full_disk_publishes_nothing_and_says_so(log: DirectoryLog) -> None:
    log.publish([_event(0)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(Unavailable, match="space"):
            log.publish([_event(1, "x" * 100_000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert log.end() == {0: 1}
    log.publish([_event(1)])
    assert _ids(log) == ["0", "1"]


def test_a_damaged_segment_is_a_data_fault(log: DirectoryLog) -> None:
    log.publish([_event(0)])
    next(log.directory.glob("*.jsonl")).write_bytes(b"\x00\x00\n")
    with pytest.raises(DataFault, match="CORRUPT"):
        log.read(0, 0, 1)


def test_a_log_that_is_not_known_here_is_refused(tmp_path: Path) -> None:
    settings = resolve(tmp_path, {}, {}, {})
    with pytest.raises(InvalidRequest, match="Use a directory"):
        open_pointer_log("pulsar://somewhere", settings)
    open_pointer_log(settings.text("log.uri"), settings).publish([_event(0)])
    assert (tmp_path / "log").is_dir()


_WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_pointer_log import _event, _open
log = _open(Path(sys.argv[2]))
writer, publishes = int(sys.argv[3]), int(sys.argv[4])
for number in range(publishes):
    identity = writer * 1_000_000 + number
    log.publish([_event(identity)] * (1 + number % 3))
    print(identity, flush=True)
"""


def _writer(log: DirectoryLog, number: int, publishes: int, fault: str | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, **({"HEADWATER_FAULT": fault} if fault else {})}
    arguments = [str(Path(__file__).parent), str(log.directory), str(number), str(publishes)]
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )


def test_four_processes_publish_two_hundred_times_without_a_gap_or_a_loss(log: DirectoryLog) -> None:
    writers = [_writer(log, number, 50) for number in range(4)]
    acknowledged = [identity for writer in writers for identity in writer.communicate(timeout=60)[0].split()]
    lines = log.read(0, 0, 1_000_000)
    assert [line.offset for line in lines] == list(range(len(lines)))
    assert log.end() == {0: len(lines)} == {0: 4 * sum(1 + number % 3 for number in range(50))}
    assert set(acknowledged) == set(_ids(log))


def test_writers_killed_anywhere_leave_a_sound_log_with_all_that_was_acknowledged(log: DirectoryLog) -> None:
    fated = [_writer(log, number, 50, f"log.written:{1 + number * 7}") for number in range(3)]
    hit = _writer(log, 3, 100_000)
    assert hit.stdout is not None
    first = hit.stdout.readline().strip()
    time.sleep(0.3)
    hit.kill()
    acknowledged = {first, *hit.communicate(timeout=60)[0].split()}
    for writer in fated:
        acknowledged |= set(writer.communicate(timeout=60)[0].split())
        assert writer.returncode == -9
    log.publish([_event(4_000_000)])
    lines = log.read(0, 0, 1_000_000)
    assert [line.offset for line in lines] == list(range(log.end()[0]))
    assert acknowledged <= set(_ids(log))
    assert [path for path in log.directory.glob("*") if path.name.endswith(".tmp")] == []


def test_publishing_does_not_slow_down_as_segments_pile_up(log: DirectoryLog) -> None:
    log.publish([_event(0)])
    for base in range(1, 20_000):
        (log.directory / f"{base:020d}-000001.jsonl").touch()
    (log.directory / ".next").unlink()
    log.publish([_event(20_000)])
    begun = time.perf_counter()
    for number in range(20):
        log.publish([_event(number)])
    assert (time.perf_counter() - begun) / 20 < 0.05
    assert log.end() == {0: 20_021}
