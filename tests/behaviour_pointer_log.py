"""What a pointer log promises, wherever it is kept: durable, in order, many writers, nothing acknowledged is lost.

The file that imports these tests gives the fixture `log_uri`: a log of this test alone, with one partition.
"""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater.domain.event import Event
from headwater.domain.modality import Modality
from headwater.domain.pointer import Pointer
from headwater.errors import InvalidRequest
from headwater.settings import resolve
from headwater.storage.log.pointer_log import PointerLog, open_pointer_log

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def event(number: int, text: str = "hello", customer: str = "acme") -> Event:
    pointer = Pointer(f"chat/{customer}/{number}", len(text), "text/plain", "0" * 64)
    return Event(str(number), Modality.CHAT, customer, pointer, START, text)


def open_log(uri: str) -> PointerLog:
    return open_pointer_log(uri, resolve(Path("lake"), {}, {"log.partitions": 1}, {}))


def ids_in(log: PointerLog, offset: int = 0, limit: int = 1_000_000) -> list[str]:
    return [json.loads(line.value)["event_id"] for line in log.read(0, offset, limit)]


@pytest.fixture
def log(log_uri: str) -> PointerLog:
    return open_log(log_uri)


def test_an_empty_log_begins_and_ends_at_zero(log: PointerLog) -> None:
    log.publish([])
    assert log.begin() == log.end() == {0: 0}
    assert log.read(0, 0, 10) == []
    assert log.read(7, 0, 10) == []


def test_what_was_published_is_read_back_in_order_by_another_process_s_view(log: PointerLog, log_uri: str) -> None:
    begun = datetime.now(UTC)
    log.publish([event(0), event(1)])
    log.publish([event(2, 'quotes " and \u2028 and \n newlines \r 😀')])
    other = open_log(log_uri)
    lines = other.read(0, 0, 10)
    assert [line.offset for line in lines] == [0, 1, 2]
    assert Event.from_dict(json.loads(lines[0].value)) == event(0)
    assert json.loads(lines[2].value)["text"] == 'quotes " and \u2028 and \n newlines \r 😀'
    assert abs((lines[0].published_at - begun).total_seconds()) < 60
    assert other.end() == {0: 3}
    assert other.identity() == log.identity()


@pytest.mark.parametrize("offset, limit, ids", [(0, 2, ["0", "1"]), (1, 3, ["1", "2", "3"]), (4, 9, ["4"]), (5, 9, [])])
def test_reading_starts_anywhere_and_stops_at_its_limit(
    log: PointerLog, offset: int, limit: int, ids: list[str]
) -> None:
    for first in (0, 2):
        log.publish([event(first), event(first + 1)])
    log.publish([event(4)])
    assert ids_in(log, offset, limit) == ids


def test_text_that_is_not_unicode_is_refused_and_nothing_is_published(log: PointerLog) -> None:
    with pytest.raises(InvalidRequest):
        log.publish([event(0), event(1, "\ud800")])
    assert log.end() == {0: 0}


def test_a_reader_sees_what_is_published_after_it_looked(log: PointerLog, log_uri: str) -> None:
    reader = open_log(log_uri)
    for number in range(3):
        log.publish([event(number)])
        assert ids_in(reader, number) == [str(number)]


def test_publishing_again_adds_a_line_and_expiring_again_removes_nothing(log: PointerLog) -> None:
    log.publish([event(0)])
    log.publish([event(0)])
    assert ids_in(log) == ["0", "0"]
    for _ in range(2):
        assert log.expire(datetime.now(UTC), {0: 2}).removed_events == 0
    assert ids_in(log) == ["0", "0"]


_WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from behaviour_pointer_log import event, open_log
log = open_log(sys.argv[2])
writer, publishes = int(sys.argv[3]), int(sys.argv[4])
for number in range(publishes):
    identity = writer * 1_000_000 + number
    log.publish([event(identity)] * (1 + number % 3))
    print(identity, flush=True)
"""


def start_writer(uri: str, number: int, publishes: int, **environment: str) -> "subprocess.Popen[str]":
    arguments = [str(Path(__file__).parent), uri, str(number), str(publishes)]
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_four_processes_publish_two_hundred_times_without_a_gap_or_a_loss(log: PointerLog, log_uri: str) -> None:
    writers = [start_writer(log_uri, number, 50) for number in range(4)]
    acknowledged = [identity for writer in writers for identity in writer.communicate(timeout=60)[0].split()]
    lines = log.read(0, 0, 1_000_000)
    assert [line.offset for line in lines] == list(range(len(lines)))
    assert log.end() == {0: len(lines)} == {0: 4 * sum(1 + number % 3 for number in range(50))}
    assert set(acknowledged) == set(ids_in(log))


def test_a_writer_killed_anywhere_leaves_a_sound_log_with_all_that_was_acknowledged(
    log: PointerLog, log_uri: str
) -> None:
    writer = start_writer(log_uri, 1, 100_000)
    assert writer.stdout is not None
    some = {writer.stdout.readline().strip() for _ in range(20)}
    writer.kill()
    acknowledged = some | {*writer.communicate(timeout=60)[0].split()}
    log.publish([event(4_000_000)])
    lines = log.read(0, 0, 1_000_000)
    assert [line.offset for line in lines] == list(range(log.end()[0]))
    assert acknowledged <= set(ids_in(log))
