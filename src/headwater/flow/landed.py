"""What became of each thing that was put, and how the events of many go out together.

Writes  the pointer log
Invariant: a result is given only once its event is published.
"""

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from headwater.clock import Clock
from headwater.domain.event import Event
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.flow.known_files import KnownFiles
from headwater.storage.log.pointer_log import PointerLog

BATCH_EVENTS: Final = 256
BATCH_SECONDS: Final = 1.0  # about the longest that a file which is stored waits for its event
WRITERS: Final = 8  # storing is mostly waiting for the disk to sync, and a disk syncs several files at once

Status = Literal["stored", "already there", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Landed:
    """What became of one file or text: `event` is there if it arrived, `error` if it failed, `reason` if skipped.

    `unsupported` is the ending of a file whose kind is not taken, whether that is a failure or was to be skipped.
    """

    source: str
    status: Status
    event: Event | None = None
    error: HeadwaterError | None = None
    reason: str | None = None
    unsupported: str | None = None


def failed(source: str, error: HeadwaterError) -> Landed:
    return Landed(source, "failed", error=error)


def require_landed(results: list[Landed]) -> list[Landed]:
    """The same results; or the first error among them, with a note of how many there are."""
    errors = [landed.error for landed in results if landed.error]
    if not errors:
        return results
    if len(errors) > 1:
        errors[0].add_note(f"{len(errors):,} of {len(results):,} failed; collect=True returns every result.")
    raise errors[0]


@dataclass(slots=True)
class LandingBatch:
    """Files on their way, in order: first being stored, then waiting to be announced together."""

    log: PointerLog
    clock: Clock
    ids: KnownFiles | None = None  # that are told of each id that went out
    storing: deque[tuple[str, Future[Landed]]] = field(default_factory=deque)
    waiting: list[Landed] = field(default_factory=list)
    since: datetime | None = None

    def make_room(self, name: str) -> None:
        """Of two files with one name the first is to win, so the second waits until it is stored."""
        while self.storing and (
            len(self.storing) >= WRITERS or self.storing[0][1].done() or any(name == other for other, _ in self.storing)
        ):
            self._settle()

    def settle_all(self) -> None:
        while self.storing:
            self._settle()

    def _settle(self) -> None:
        _, landed = self.storing.popleft()
        self.add(landed.result())

    def add(self, landed: Landed) -> None:
        self.waiting.append(landed)
        self.since = self.since or self.clock()

    def is_due(self) -> bool:
        waited = self.clock() - self.since if self.since else timedelta()
        return len(self.waiting) >= BATCH_EVENTS or waited >= timedelta(seconds=BATCH_SECONDS)

    def publish(self) -> list[Landed]:
        """The results, which from now on may be told; a failure to publish is the failure of each."""
        results, self.waiting, self.since = self.waiting, [], None
        try:
            _publish(self.log, results)
            for landed in results:
                if self.ids is not None and landed.event is not None:
                    self.ids.note_id(landed.event)
        except InvalidRequest:  # of one of them; the others go on, and an event that went out twice is one
            return [self._publish_alone(landed) for landed in results]
        except HeadwaterError as error:
            return [failed(landed.source, error) if landed.event else landed for landed in results]
        return results

    def _publish_alone(self, landed: Landed) -> Landed:
        try:
            _publish(self.log, [landed])
        except HeadwaterError as error:
            return failed(landed.source, error)
        return landed


def _publish(log: PointerLog, results: Iterable[Landed]) -> None:
    log.publish([landed.event for landed in results if landed.event])
