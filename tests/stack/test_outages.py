"""Servers killed with SIGKILL while events flow: what was acknowledged is read once, and nothing else is."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import rounds
from waiting import let_pass, wait_until

from headwater import lake as lakes
from headwater.components import Components
from headwater.errors import HeadwaterError
from headwater.flow.land_text import text_event
from headwater.lake import Lake
from headwater.settings import FILE_NAME, Settings, load
from headwater.stack.stack import Stack, settings_text

EVENTS = 20_000
AT_ONCE = 250
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
DOWN_SECONDS = 3.0


def write_lake(settings: Settings, **more: str) -> Path:
    """The settings of a fixture as a lake's own file, for processes of their own."""
    chosen = {name: one.value for name, one in settings.chosen.items() if one.origin != "default"}
    text = settings_text({**chosen, **{name.replace("__", "."): value for name, value in more.items()}})
    (settings.lake / FILE_NAME).write_text(text, encoding="utf-8")
    return settings.lake


class Sender(threading.Thread):
    """Publishes until every event is acknowledged, through any outage; an unacknowledged batch is sent again."""

    def __init__(self, lake: Path, count: int) -> None:
        super().__init__(daemon=True)
        self._lake, self._count = lake, count
        self.allowed = 0  # how many may be sent so far, so that every kill meets some under way
        self.acknowledged: set[str] = set()

    def run(self) -> None:
        for first in range(0, self._count, AT_ONCE):
            wait_until(lambda least=first: least < self.allowed, seconds=600)
            numbers = range(first, min(first + AT_ONCE, self._count))
            events = [text_event(f"line {n}: my parcel is late", f"customer-{n % 7}", f"e{n}", AT) for n in numbers]
            wait_until(lambda some=events: self._published(some), seconds=600, every=1)
            self.acknowledged |= {event.event_id for event in events}

    def _published(self, events: list[object]) -> bool:
        try:
            Components(load(Path(self._lake))).log.publish(events)  # type: ignore[arg-type]
        except HeadwaterError:
            return False
        return True


@contextmanager
def supervised_run(lake: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """`headwater run`, started again whenever it ends, as a service manager would; yields the processes so far."""
    done = threading.Event()
    begun: list[subprocess.Popen[bytes]] = []
    command = [sys.executable, "-m", "headwater", "--lake", str(lake), "run"]
    errors = (lake / "run.err").open("wb")

    def keep_running() -> None:
        while not done.is_set():
            begun.append(subprocess.Popen(command, env=dict(os.environ), stderr=errors))
            while begun[-1].poll() is None and not done.wait(0.2):
                pass
            done.wait(1)

    thread = threading.Thread(target=keep_running, daemon=True)
    thread.start()
    try:
        yield begun
    finally:
        done.set()
        thread.join()
        if begun and begun[-1].poll() is None:
            begun[-1].send_signal(signal.SIGTERM)
            begun[-1].wait(60)
        errors.close()


def wait_through_outages(condition: Callable[[], Any], seconds: float) -> None:
    def is_met() -> Any:
        with suppress(HeadwaterError):
            return condition()
        return None

    wait_until(is_met, seconds=seconds, every=1)


def bronze_rows(lake: Path) -> int:
    return lakes.open(lake).table("events").to_arrow().num_rows


def assert_read_once(lake: Lake, acknowledged: set[str], media: int) -> None:
    ids = lake.table("events").to_arrow()["event_id"].to_pylist()
    chat = [one for one in ids if one.startswith("e")]
    assert sorted(chat) == sorted(acknowledged)
    assert len(ids) == len(acknowledged) + media
    for table in ("messages", "embeddings"):
        found = lake.table(table).to_arrow()["event_id"].to_pylist()
        assert sorted(one for one in found if one.startswith("e")) == sorted(acknowledged), table
    status = lake.status()
    assert status["index"] == {"entries": lake.table("embeddings").to_arrow().num_rows, "stale_by": 0}


PARTS = ("kafka", "s3", "postgres", "spark-worker-1", "driver")


@pytest.mark.timeout(1200)
def test_each_part_killed_once_while_events_flow_loses_and_repeats_nothing(
    stack: Stack, stack_lake: Settings, cluster_url: str, tmp_path: Path
) -> None:
    survive(stack, stack_lake, cluster_url, tmp_path, [(part,) for part in PARTS])


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_parts_killed_in_pairs_while_events_flow_lose_and_repeat_nothing(
    stack: Stack, stack_lake: Settings, cluster_url: str, tmp_path: Path
) -> None:
    survive(stack, stack_lake, cluster_url, tmp_path, list(combinations(PARTS, 2)))


def survive(
    stack: Stack, settings: Settings, cluster_url: str, tmp_path: Path, kills: Sequence[tuple[str, ...]]
) -> None:
    """Each kill comes once rows have moved since the last, so it meets a run at work."""
    models = {"models__transcribe": "cheap_models:CheapSpeech", "models__caption": "cheap_models:CheapReader"}
    lake = write_lake(settings, spark__master=cluster_url, **models)
    lakes.init(lake).close()
    folder = rounds.make_media(tmp_path / "media", 1)
    stored = [one for one in lakes.open(lake).put(folder, customer="acme", at=AT) if one.event]
    sender = Sender(lake, EVENTS)
    with supervised_run(lake) as runs:
        sender.start()
        for number, parts in enumerate(kills, 1):
            before = bronze_rows(lake)
            sender.allowed = EVENTS * number // len(kills)
            wait_through_outages(lambda least=before: bronze_rows(lake) > least, 180)
            kill_for_a_while(stack, runs, parts)
        sender.join(300)
        assert len(sender.acknowledged) == EVENTS
        wait_through_outages(lambda: not lakes.open(lake).pending(), 400)
    with lakes.open(lake) as opened:
        assert_read_once(opened, sender.acknowledged, len(stored))


def kill_for_a_while(stack: Stack, runs: list[subprocess.Popen[bytes]], parts: Sequence[str]) -> None:
    for part in parts:
        if part == "driver":
            runs[-1].kill()
        else:
            stack.kill(part)
    let_pass(DOWN_SECONDS, "it is down for that long")
    stack.up([part for part in parts if part != "driver"] or ["kafka"])
