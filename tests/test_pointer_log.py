"""The pointer log in a directory: dense segments, and nothing unread is ever expired."""

import json
import os
import resource
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from behaviour_pointer_log import *  # noqa: F403
from behaviour_pointer_log import START, event, ids_in, start_writer

from headwater.clock import utc_now
from headwater.errors import DataFault, InvalidRequest, NotFound, Unavailable
from headwater.settings import resolve
from headwater.storage.log.directory_log import SEGMENT_BYTES, DirectoryLog
from headwater.storage.log.pointer_log import open_pointer_log
from headwater.storage.log.stream import read_segments

RETENTION_HOURS = 48
DEAD = timedelta(hours=RETENTION_HOURS, seconds=1)


def _open(directory: Path, now: datetime = START) -> DirectoryLog:
    return DirectoryLog(directory, RETENTION_HOURS, lambda: now)


@pytest.fixture
def log_uri(tmp_path: Path) -> str:
    return str(tmp_path / "log")


@pytest.fixture
def directory_log(log_uri: str) -> DirectoryLog:
    return _open(Path(log_uri))


def test_a_large_publish_is_cut_into_segments_that_stay_dense(directory_log: DirectoryLog) -> None:
    directory_log.publish([event(number, "x" * 40_000) for number in range(100)])
    segments = sorted(directory_log.directory.glob("*.jsonl"))
    assert len(segments) == 4
    assert all(segment.stat().st_size <= SEGMENT_BYTES * 1.05 for segment in segments)
    assert [line.offset for line in directory_log.read(0, 0, 1000)] == list(range(100))


def test_a_segment_is_plain_json_lines_and_nothing_else_is_visible(directory_log: DirectoryLog) -> None:
    directory_log.publish([event(0), event(1)])
    (segment,) = [path for path in directory_log.directory.iterdir() if not path.name.startswith((".", "_"))]
    assert segment.name == "00000000000000000000-000002.jsonl"
    first = json.loads(segment.read_text().splitlines()[0])
    assert first == {"offset": 0, "published_at": "2026-01-31T12:00:00.000Z", "event": event(0).to_dict()}


def test_a_line_that_is_no_event_travels_as_it_was_sent(directory_log: DirectoryLog) -> None:
    directory_log.publish_raw(["{not json", "\x00\ud83d", ""])
    assert [line.value for line in directory_log.read(0, 0, 10)] == ["{not json", "\x00\ud83d", ""]


def test_expiry_removes_what_is_old_and_read_and_keeps_the_rest(directory_log: DirectoryLog) -> None:
    for number in range(4):
        _open(directory_log.directory, START + timedelta(hours=number)).publish([event(number)])
    expired = directory_log.expire(START + timedelta(hours=2) + DEAD, {0: 2})
    assert (expired.removed_events, expired.overdue_events) == (2, 1)
    assert (directory_log.begin(), directory_log.end()) == ({0: 2}, {0: 4})
    assert ids_in(directory_log, 2) == ["2", "3"]
    with pytest.raises(NotFound, match="begins at 2"):
        directory_log.read(0, 1, 10)
    assert directory_log.expire(START + timedelta(hours=2) + DEAD, {0: 2}).removed_events == 0


def test_nothing_unread_expires_unless_forced(directory_log: DirectoryLog) -> None:
    directory_log.publish([event(0), event(1)])
    assert directory_log.expire(START + DEAD, {}).overdue_events == 2
    assert directory_log.expire(START + DEAD, {0: 1}).removed_events == 0
    assert ids_in(directory_log) == ["0", "1"]
    assert directory_log.expire(START + DEAD, {}, force=True).removed_events == 2


@pytest.mark.parametrize("lost", [[], [".next"]])
def test_offsets_are_never_used_again_even_when_everything_expired(
    directory_log: DirectoryLog, lost: list[str]
) -> None:
    directory_log.publish([event(number) for number in range(5)])
    directory_log.expire(START + DEAD, {0: 5})
    for name in lost:
        (directory_log.directory / name).unlink()
    assert list(directory_log.directory.glob("*.jsonl")) == []
    assert directory_log.begin() == directory_log.end() == {0: 5}
    with pytest.raises(NotFound):
        directory_log.read(0, 0, 1)
    _open(directory_log.directory).publish([event(5)])
    assert [line.offset for line in directory_log.read(0, 5, 10)] == [5]


@pytest.mark.parametrize("hint", [b"", b"{", b"[]", b'{"base":0,"count":1,"place":"another boot"}', b'{"base":"x"}'])
def test_a_lost_or_foreign_hint_costs_a_listing_and_nothing_else(directory_log: DirectoryLog, hint: bytes) -> None:
    directory_log.publish([event(0), event(1)])
    directory_log.publish([event(2)])
    (directory_log.directory / ".next").write_bytes(hint)
    assert directory_log.end() == {0: 3}
    directory_log.publish([event(3)])
    assert ids_in(directory_log) == ["0", "1", "2", "3"]


def test_a_copied_log_does_not_believe_the_original_s_hint(directory_log: DirectoryLog, tmp_path: Path) -> None:
    directory_log.publish([event(0)])
    stale = (directory_log.directory / ".next").read_bytes()
    directory_log.publish([event(1)])
    copy = tmp_path / "copy"
    shutil.copytree(directory_log.directory, copy)
    (copy / ".next").write_bytes(stale)
    assert _open(copy).end() == {0: 2}


def test_a_full_disk_publishes_nothing_and_says_so(directory_log: DirectoryLog) -> None:
    directory_log.publish([event(0)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(Unavailable, match="space"):
            directory_log.publish([event(1, "x" * 100_000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert directory_log.end() == {0: 1}
    directory_log.publish([event(1)])
    assert ids_in(directory_log) == ["0", "1"]


def test_a_damaged_segment_is_a_data_fault(directory_log: DirectoryLog) -> None:
    directory_log.publish([event(0)])
    next(directory_log.directory.glob("*.jsonl")).write_bytes(b"\x00\x00\n")
    with pytest.raises(DataFault, match="CORRUPT"):
        directory_log.read(0, 0, 1)


def test_a_log_that_is_not_known_here_is_refused(tmp_path: Path) -> None:
    settings = resolve(tmp_path, {}, {}, {})
    with pytest.raises(InvalidRequest, match="Use a directory"):
        open_pointer_log("pulsar://somewhere", settings)
    open_pointer_log(settings.text("log.uri"), settings).publish([event(0)])
    assert (tmp_path / "log").is_dir()


def test_writers_killed_at_a_segment_leave_a_sound_log_with_all_that_was_acknowledged(
    directory_log: DirectoryLog, log_uri: str
) -> None:
    fated = [start_writer(log_uri, number, 50, HEADWATER_FAULT=f"log.written:{1 + number * 7}") for number in range(3)]
    hit = start_writer(log_uri, 3, 100_000)
    assert hit.stdout is not None
    some = {hit.stdout.readline().strip() for _ in range(20)}
    hit.kill()
    acknowledged = some | {*hit.communicate(timeout=60)[0].split()}
    for writer in fated:
        acknowledged |= set(writer.communicate(timeout=60)[0].split())
        assert writer.returncode == -9
    directory_log.publish([event(4_000_000)])
    lines = directory_log.read(0, 0, 1_000_000)
    assert [line.offset for line in lines] == list(range(directory_log.end()[0]))
    assert acknowledged <= set(ids_in(directory_log))
    assert [path for path in directory_log.directory.glob("*") if path.name.endswith(".tmp")] == []


def test_publishing_does_not_slow_down_as_segments_pile_up(
    directory_log: DirectoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what it does, not by the clock of a busy machine: it lists nothing."""
    directory_log.publish([event(0)])
    for base in range(1, 20_000):
        (directory_log.directory / f"{base:020d}-000001.jsonl").touch()
    (directory_log.directory / ".next").unlink()
    directory_log.publish([event(20_000)])
    monkeypatch.setattr(os, "listdir", lambda _: pytest.fail("the directory was listed"))
    for number in range(200):
        directory_log.publish([event(number)])
    assert directory_log.end() == {0: 20_201}


def test_lines_of_every_kind_are_read_in_batches_from_an_offset_on(tmp_path: Path) -> None:
    """Events, what a foreign producer sent, a damaged line, and one that is gone."""
    log = DirectoryLog(tmp_path / "log", 24)
    for number in range(3):
        log.publish([event(number, 'quoted "}} é')])
    log.publish_raw(["no event", '{"event": 1}', "gone"])
    (damaged,) = tmp_path.glob("log/*3-000003.jsonl")
    kept = damaged.read_bytes().replace(b'"raw":"no event"', b'"raw":"no eve').splitlines(keepends=True)[:2]
    damaged.write_bytes(b"".join(kept))
    batches = list(read_segments(log, 1, 200))
    assert len(batches) > 1
    lines = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert [line[:3] for line in lines] == [(0, 1, 2), (0, 2, 3), (0, None, 6), (0, 4, 6), (0, None, 6)]
    values = [line[3] for line in lines]
    assert [json.loads(value)["text"] for value in values[:2]] == ['quoted "}} é'] * 2
    assert values[2].endswith(b'"raw":"no eve}')
    assert values[3:] == [b'{"event": 1}', b"line 5 of the log is gone from its segment"]


@pytest.mark.parametrize("lost", ["emptied", "removed"])
def test_a_segment_that_is_lost_still_says_so(directory_log: DirectoryLog, lost: str) -> None:
    for first in (0, 2, 4):
        directory_log.publish([event(first), event(first + 1)])
    (middle,) = directory_log.directory.glob("*2-000002.jsonl")
    middle.write_bytes(b"") if lost == "emptied" else middle.unlink()
    (batch,) = read_segments(directory_log, 0, 1 << 20)
    assert batch["log_offset"].to_pylist() == [0, 1, None, None, 4, 5]
    assert batch["log_end"].to_pylist() == [2, 2, 4, 4, 6, 6]
    (batch_from_there,) = read_segments(directory_log, 2, 1 << 20)
    assert batch_from_there == batch.slice(2)
    assert batch["value"].to_pylist()[2:4] == [
        b"line %d of the log is gone from its segment" % number for number in (2, 3)
    ]


def test_an_offset_that_is_not_of_its_segment_is_no_offset(directory_log: DirectoryLog) -> None:
    directory_log.publish([event(0)])
    (file,) = directory_log.directory.glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b'"offset":0', b'"offset":%d' % 2**70))
    (batch,) = read_segments(directory_log, 0, 1 << 20)
    assert batch["log_offset"].to_pylist() == [None]


@pytest.mark.parametrize("content", [b"", b"garbage\n", b'{"offset":0'])
def test_a_damaged_segment_expires_by_the_age_of_its_file(directory_log: DirectoryLog, content: bytes) -> None:
    directory_log.publish([event(0)])
    (file,) = directory_log.directory.glob("*.jsonl")
    file.write_bytes(content)
    assert directory_log.expire(utc_now(), {0: 1}).removed_events == 0
    assert directory_log.expire(utc_now() + DEAD, {0: 1}).removed_events == 1


def test_a_listing_while_others_publish_leaves_nothing_out(directory_log: DirectoryLog, log_uri: str) -> None:
    writers = [start_writer(log_uri, number, 300) for number in range(2)]
    seen, next_offset = [], 0
    while any(writer.poll() is None for writer in writers) or next_offset < directory_log.end()[0]:
        for segment, data in directory_log.segments(next_offset):
            seen += [segment.read_line(line)[0] for line in segment.lines(data)]
            next_offset = segment.end
    assert seen == list(range(directory_log.end()[0]))
