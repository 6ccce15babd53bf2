"""`lake.quarantine`: what could not be processed, and the ways out. Each method calls one function."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.components import Components

if TYPE_CHECKING:
    from headwater.domain.quarantine import Retried
    from headwater.upkeep.quarantine import DismissalPlan
    from headwater.upkeep.work import Report


class LakeQuarantine:
    """`lake.quarantine()` lists it; `lake.quarantine.dismiss("e3", because="test data", by="Ada")` lets rows go."""

    def __init__(self, components: Components) -> None:
        self._parts = components

    def __call__(self, reason: str | None = None) -> dict[str, Any]:
        """What is set aside, by reason; and apart from it what was dismissed. Starts no JVM."""
        from headwater.upkeep.quarantine import list_quarantine

        return list_quarantine(self._parts.reader, self._parts.ledger, reason)

    def plan_dismissal(self, *ids: str, reason: str | None = None, undo: bool = False) -> "DismissalPlan":
        """The rows of these events or objects, or of a reason, that `dismiss` would let go; starts no JVM."""
        from headwater.upkeep.quarantine import plan_dismissal

        return plan_dismissal(self._parts.reader, self._parts.ledger, ids, reason, undo=undo)

    def dismiss(
        self, *ids: str, reason: str | None = None, because: str = "", by: str = "", undo: bool = False
    ) -> "DismissalPlan":
        """Let go of rows that nobody is going to mend, saying why and who says so; or with `undo` take that back."""
        from headwater.upkeep.quarantine import dismiss_rows

        return dismiss_rows(self._parts, ids, reason, because=because, by=by, undo=undo)

    def retry(
        self,
        reason: str | None = None,
        *,
        model: str | None = None,
        report: "Report | None" = None,
        on_start: Callable[[], None] | None = None,
    ) -> "Retried":
        """Derive again what is quarantined, by another model if one is named; then carry what came of it on.
        `on_start` is called where Spark is about to start."""
        from headwater.upkeep.run import retry

        return retry(self._parts, reason, model, report, on_start)
