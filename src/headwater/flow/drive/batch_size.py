"""Batch size: how many objects the next batch takes, learnt from how long the last ones took."""

from dataclasses import dataclass
from typing import Final

FIRST_BYTES: Final = 4 << 20  # for each worker: two minutes of sound, or twenty screenshots
_LEAP: Final = 8


@dataclass(slots=True)
class BatchSize:
    """As many as were done in `seconds`, but no leap, and no more than `most`.

    A batch of long calls is committed before it grows old, and a backlog of chat is not committed in crumbs. Where
    fewer objects went slower, object for object, it is not the objects that take the time: then it goes back to more.
    """

    seconds: float
    most: int
    rows: int = 2_000
    _before: tuple[int, float] | None = None  # the batch before: its objects, and how many a second

    def __post_init__(self) -> None:
        self.rows = min(self.rows, self.most)

    def within(self, most: int) -> int:
        """How many the next batch takes, where `most` are as many as it may now: workers come and go."""
        self.most = most
        return min(self.rows, most)

    def learn(self, rows: int, seconds: float) -> None:
        wanted, rate = rows * self.seconds / max(seconds, 0.001), rows / max(seconds, 0.001)
        if self._before and rows < self._before[0] and wanted < rows and rate < self._before[1]:
            wanted = self._before[0]
        self._before = (rows, rate)
        self.rows = int(min(self.most, max(1, self.rows // 4, min(wanted, self.rows * 4))))


@dataclass(slots=True)
class BatchBytes:
    """How many bytes the next batch takes: few to begin with, so that what is done is there to be found before minutes
    have gone; soon as many as are done in `seconds`."""

    seconds: float
    bytes: int = 2 * FIRST_BYTES

    def within(self, most: int) -> int:
        return min(self.bytes, most)

    def learn(self, done: int, seconds: float) -> None:
        wanted = int(done * self.seconds / max(seconds, 0.001))
        if seconds > self.seconds:
            self.bytes = max(FIRST_BYTES, min(self.bytes, wanted))
        else:  # a small batch says little of a large one, but that it may be larger
            self.bytes = min(max(self.bytes, wanted), self.bytes * _LEAP)
