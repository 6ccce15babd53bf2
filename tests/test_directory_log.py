"""The directory log over its life: it knows which log it is, stays few files, and costs the same however old it is."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from behaviour_pointer_log import START, event, ids_in, start_writer

from headwater.errors import Unavailable
from headwater.storage.log.directory_log import DirectoryLog
from headwater.storage.log.pointer_log import ADOPTED
from headwater.storage.log.segment_merge import MERGE_SEGMENTS, SEGMENT_BYTES
from headwater.storage.log.stream import read_segments

HOURS = 48


@pytest.fixture
def log(tmp_path: Path) -> DirectoryLog:
    return DirectoryLog(tmp_path / "log", HOURS, lambda: START)


def again(log: DirectoryLog, now: datetime = START) -> DirectoryLog:
    return DirectoryLog(log.directory, HOURS, lambda: now)


def files(log: DirectoryLog) -> list[str]:
    return sorted(path.name for path in log.directory.glob("*.jsonl"))


def offsets(log: DirectoryLog) -> list[int]:
    return [line.offset for line in log.read(0, log.begin()[0], 1_000_000)]


def following(log: DirectoryLog, start: int) -> list[int]:
    return [offset for batch in read_segments(log, start, 1 << 20) for offset in batch["log_offset"].to_pylist()]


_IDENTIFY = "import sys; from headwater.storage.log.directory_log import DirectoryLog; from pathlib import Path; "
_IDENTIFY += "sys.stdin.readline(); print(DirectoryLog(Path(sys.argv[1]), 48).identity())"


def test_whoever_is_first_of_many_processes_says_which_log_it_is(log: DirectoryLog) -> None:
    line = [sys.executable, "-c", _IDENTIFY, str(log.directory)]
    asked = [subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    said = {process.communicate("now\n", timeout=60)[0].strip() for process in asked}
    assert said == {log.identity()}
    assert len(log.identity()) == 36


def test_killed_while_it_gets_its_identity_a_log_gets_one_later_and_nothing_is_acknowledged_before(
    log: DirectoryLog,
) -> None:
    writer = start_writer(str(log.directory), 1, 5, HEADWATER_FAULT="log.identified")
    assert (writer.communicate(timeout=60)[0], writer.returncode) == ("", -signal.SIGKILL)
    assert files(log) == []
    log.publish([event(0)])
    assert again(log).identity() == log.identity() != ""
    assert ids_in(log) == ["0"]


def test_a_copy_is_the_same_log_and_one_that_was_wiped_another(log: DirectoryLog, tmp_path: Path) -> None:
    log.publish([event(0)])
    identity = log.identity()
    shutil.copytree(log.directory, tmp_path / "copy")
    assert DirectoryLog(tmp_path / "copy", HOURS).identity() == identity
    shutil.rmtree(log.directory)
    assert log.identity() != identity
    log.publish([event(1)])
    assert offsets(log) == [0]


def test_a_log_of_an_earlier_version_gets_an_identity_and_keeps_its_lines(log: DirectoryLog) -> None:
    log.publish([event(0), event(1)])
    (log.directory / ".identity").unlink()
    (log.directory / ".next").write_text('{"base": 0, "count": 2, "place": "noted by an earlier version"}')
    adopted = again(log)
    assert adopted.identity().startswith(ADOPTED) and adopted.identity() == log.identity()
    adopted.publish([event(2)])
    assert ids_in(adopted) == ["0", "1", "2"]
    assert following(adopted, 1) == [1, 2]


def test_an_event_written_into_a_log_that_was_moved_away_meanwhile_is_not_acknowledged(log: DirectoryLog) -> None:
    log.publish([event(0)])
    writer = start_writer(str(log.directory), 1, 1, HEADWATER_FAULT="log.written:1:stop")
    _, status = os.waitpid(writer.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    log.directory.rename(log.directory.with_name("moved"))
    log.publish([event(1)])
    writer.send_signal(signal.SIGCONT)
    assert (writer.communicate(timeout=60)[0], writer.returncode) == ("", 1)
    assert ids_in(log) == ["1"], "and the log that is there now has its own lines alone"


def test_segments_that_somebody_deleted_are_missed_and_their_offsets_never_given_again(log: DirectoryLog) -> None:
    for number in range(5):
        log.publish([event(number)])
    for name in files(log):
        (log.directory / name).unlink()
    assert log.begin() == log.end() == {0: 5}
    log.publish([event(5)])
    assert offsets(log) == [5]


def test_the_newest_segments_deleted_are_told_line_by_line(log: DirectoryLog) -> None:
    for number in range(5):
        log.publish([event(number)])
    for name in files(log)[3:]:
        (log.directory / name).unlink()
    assert log.end() == {0: 5}
    assert following(log, 0) == [0, 1, 2, None, None]
    log.publish([event(5)])
    assert following(log, 0) == [0, 1, 2, None, None, 5]


def test_many_small_publishes_become_few_files_with_the_same_lines(log: DirectoryLog) -> None:
    publishes = 600
    for number in range(publishes):
        log.publish([event(number)])
    assert len(files(log)) < MERGE_SEGMENTS + publishes / MERGE_SEGMENTS
    assert ids_in(log) == [str(number) for number in range(publishes)]
    assert ids_in(again(log), 599) == ["599"]
    for start in (0, 1, 63, 64, 300, 599):
        assert following(log, start) == list(range(start, publishes))


def test_merged_segments_are_merged_until_they_are_full(log: DirectoryLog) -> None:
    publishes = 300
    for number in range(publishes):
        log.publish([event(number, "x" * 17_000)])
    sizes = [path.stat().st_size for path in log.directory.glob("*.jsonl")]
    assert len(sizes) < publishes * 17_000 / SEGMENT_BYTES + MERGE_SEGMENTS + 2
    assert max(sizes) <= SEGMENT_BYTES
    assert offsets(log) == list(range(publishes))


def test_what_comes_hours_apart_is_not_merged_so_that_it_is_not_kept_for_hours_longer(log: DirectoryLog) -> None:
    for number in range(MERGE_SEGMENTS + 10):
        again(log, START + timedelta(minutes=20 * number)).publish([event(number)])
    assert all(int(name[21:27]) <= 4 for name in files(log))
    last_read = START + timedelta(minutes=20 * 9)
    expired = log.expire(last_read + timedelta(hours=HOURS), {0: 1_000})
    assert 6 <= expired.removed_events <= 10
    assert offsets(log) == list(range(expired.removed_events, MERGE_SEGMENTS + 10))


def test_a_damaged_segment_is_never_merged_into_others(log: DirectoryLog) -> None:
    for number in range(10):
        log.publish([event(number)])
    damaged = log.directory / files(log)[4]
    damaged.write_bytes(b"garbage\n")
    for number in range(10, MERGE_SEGMENTS + 10):
        log.publish([event(number)])
    assert len(files(log)) < MERGE_SEGMENTS
    assert damaged.read_bytes() == b"garbage\n"
    assert following(log, 0) == [0, 1, 2, 3, None, *range(5, MERGE_SEGMENTS + 10)]


@pytest.mark.parametrize("point", ["log.merging", "log.merged"])
def test_killed_while_it_merges_a_log_has_every_line_once(log: DirectoryLog, point: str) -> None:
    writer = start_writer(str(log.directory), 0, 200, HEADWATER_FAULT=point)
    acknowledged = writer.communicate(timeout=60)[0].split()
    assert writer.returncode == -signal.SIGKILL and len(acknowledged) == MERGE_SEGMENTS - 1
    for _ in range(2):
        assert set(acknowledged) <= set(ids_in(log))
        assert offsets(log) == following(log, 0) == list(range(log.end()[0]))
        (log.directory / ".next").unlink()  # as after a reboot: the directory is listed
    for number in range(100):
        log.publish([event(number)])
    assert offsets(log) == following(log, 0) == list(range(log.end()[0]))
    log.expire(START + timedelta(days=30), {0: 100_000})
    assert all(int(name[:20]) >= log.begin()[0] for name in files(log)), "what a merge left behind has gone too"


def test_looking_for_what_is_new_lists_nothing_however_many_segments_there_are(
    log: DirectoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.publish([event(0)])
    for base in range(1, 2_000):
        (log.directory / f"{base:020d}-000001.jsonl").touch()
    (log.directory / ".next").unlink()
    assert log.end() == {0: 2_000}  # lists it once, and notes what it found

    def refuse(*_: object) -> list[str]:
        raise AssertionError("the directory was listed")

    looks: tuple[Callable[[DirectoryLog], object], ...] = (
        DirectoryLog.begin,
        DirectoryLog.end,
        DirectoryLog.identity,
        lambda found: following(found, found.end()[0]),
        lambda found: found.publish([event(2_000)]),
        lambda found: following(found, found.end()[0] - 1),
        lambda found: found.fingerprint(0, found.end()[0] - 1),
    )
    monkeypatch.setattr(os, "listdir", refuse)
    for look in looks * 3:
        look(again(log))


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(Unavailable, match="try again"):
        DirectoryLog(tmp_path / "file" / "log", HOURS).publish([event(0)])
