"""`lake.upkeep`: what tends a lake at rest. Each method mirrors a command and calls one function.

What a lake cannot be opened for, because it is of another format, lost a part, or moves, is in `headwater.closed_lake`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.components import Components

if TYPE_CHECKING:
    from headwater.domain.event_problems import Problem
    from headwater.upkeep.backup.backup import BackupPlan
    from headwater.upkeep.connect import Recipe
    from headwater.upkeep.maintenance.maintain import MaintenancePlan, TableDone
    from headwater.upkeep.rescan import RescanPlan


class LakeUpkeep:
    """`lake.upkeep.plan_maintenance()` tells, `lake.upkeep.maintain()` does it."""

    def __init__(self, components: Components) -> None:
        self._parts = components

    def plan_maintenance(self) -> "MaintenancePlan":
        """What `maintain` would do; starts no JVM."""
        from headwater.upkeep.maintenance.maintain import Maintain

        return Maintain(self._parts).plan()

    def maintain(self, report: Callable[[str], None] | None = None) -> "list[TableDone]":
        """Compact small files, expire old snapshots, organise the index; safe beside a run."""
        from headwater.upkeep.maintenance.maintain import maintain

        return maintain(self._parts, report or _silent)

    def plan_rescan(self) -> "RescanPlan":
        """Raw objects that the tables do not know; starts no JVM."""
        from headwater.upkeep.rescan import Rescan

        return Rescan(self._parts).plan()

    def rescan(self, plan: "RescanPlan | None" = None) -> int:
        """Announce them again; returns how many."""
        from headwater.upkeep.rescan import rescan

        return rescan(self._parts, plan)

    def check_event(
        self, event: Mapping[str, Any] | str | bytes, *, producer: str | None = None, in_store: bool = True
    ) -> "list[Problem]":
        """As `headwater.check_event`; and whether that producer may write for its customer, `"*"` being one that is not
        known, and whether the raw store has the bytes that it announces."""
        from headwater.upkeep.event_bytes import check_announced, check_producer

        problems = check_producer(self._parts.settings, producer, event) if producer else []
        return problems or check_announced(self._parts.raw_store if in_store else None, event)

    def connect(self, engine: str, *, secrets: bool = False) -> "Recipe":
        """What `spark`, `pyiceberg`, `duckdb`, `polars` or `daft` needs to read the tables without Headwater."""
        from headwater.upkeep.connect import recipe_for

        return recipe_for(self._parts.settings, engine, secrets=secrets)

    def plan_backup(self, file: str | Path) -> "BackupPlan":
        """What `backup` would write; starts no JVM."""
        from headwater.upkeep.backup.backup import Backup

        return Backup(self._parts, Path(file)).plan()

    def backup(self, file: str | Path) -> dict[str, Any]:
        """Catalog and ledger in one file; safe beside a run. Starts no JVM. Back by `headwater.restore`."""
        from headwater.upkeep.backup.backup import back_up

        return back_up(self._parts, Path(file))

    def metrics(self) -> str:
        """The numbers of `lake.status()` and more, as OpenMetrics text; starts no JVM."""
        from headwater.upkeep.metrics import metrics_of

        return metrics_of(self._parts)

    @contextmanager
    def serve_metrics(self, port: int = 0) -> Iterator[int]:
        """On loopback at /metrics, as long as the block lasts; gives the port, which for 0 is any that is free.

        From a lake that is opened for it alone: the parts that a run works with belong to its threads.
        """
        from headwater.upkeep.metrics import serving

        with serving(port, self.metrics) as chosen:
            yield chosen


def _silent(*_: object) -> None:
    pass
