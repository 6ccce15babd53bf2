"""Where a lake's methods were before it had facets: the old names go on working, and call the new ones."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.facets.quarantine import LakeQuarantine
from headwater.facets.upkeep import LakeUpkeep

if TYPE_CHECKING:
    from headwater.domain.quarantine import Retried
    from headwater.upkeep.backup.backup import BackupPlan
    from headwater.upkeep.maintenance.maintain import MaintenancePlan, TableDone
    from headwater.upkeep.quarantine import DismissalPlan
    from headwater.upkeep.rescan import RescanPlan
    from headwater.upkeep.work import Report


class FormerNames(ABC):
    @property
    @abstractmethod
    def upkeep(self) -> LakeUpkeep: ...

    @property
    @abstractmethod
    def quarantine(self) -> LakeQuarantine: ...

    def plan_maintenance(self) -> "MaintenancePlan":
        """Now `lake.upkeep.plan_maintenance`."""
        return self.upkeep.plan_maintenance()

    def maintain(self, report: Callable[[str], None] | None = None) -> "list[TableDone]":
        """Now `lake.upkeep.maintain`."""
        return self.upkeep.maintain(report)

    def plan_rescan(self) -> "RescanPlan":
        """Now `lake.upkeep.plan_rescan`."""
        return self.upkeep.plan_rescan()

    def rescan(self, plan: "RescanPlan | None" = None) -> int:
        """Now `lake.upkeep.rescan`."""
        return self.upkeep.rescan(plan)

    def plan_backup(self, file: str | Path) -> "BackupPlan":
        """Now `lake.upkeep.plan_backup`."""
        return self.upkeep.plan_backup(file)

    def backup(self, file: str | Path) -> dict[str, Any]:
        """Now `lake.upkeep.backup`."""
        return self.upkeep.backup(file)

    def metrics(self) -> str:
        """Now `lake.upkeep.metrics`."""
        return self.upkeep.metrics()

    def plan_dismissal(self, *ids: str, reason: str | None = None, undo: bool = False) -> "DismissalPlan":
        """Now `lake.quarantine.plan_dismissal`."""
        return self.quarantine.plan_dismissal(*ids, reason=reason, undo=undo)

    def dismiss(
        self, *ids: str, reason: str | None = None, because: str = "", by: str = "", undo: bool = False
    ) -> "DismissalPlan":
        """Now `lake.quarantine.dismiss`."""
        return self.quarantine.dismiss(*ids, reason=reason, because=because, by=by, undo=undo)

    def retry(
        self,
        reason: str | None = None,
        *,
        model: str | None = None,
        report: "Report | None" = None,
        on_start: Callable[[], None] | None = None,
    ) -> "Retried":
        """Now `lake.quarantine.retry`."""
        return self.quarantine.retry(reason, model=model, report=report, on_start=on_start)
