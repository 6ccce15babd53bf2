"""Batch size: how many objects the next batch takes, learnt from how long the last ones took."""

from dataclasses import dataclass


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
