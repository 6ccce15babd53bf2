"""`lake.events`: one event looked at, corrected, or passed over. Each method calls one function."""

from typing import TYPE_CHECKING, Any

from headwater.components import Components

if TYPE_CHECKING:
    from headwater.upkeep.events import CorrectionPlan, SkipPlan


class LakeEvents:
    """`plan = lake.events.plan_correction("call-17", from_bytes=True)` tells, `lake.events.correct(plan)` does it."""

    def __init__(self, components: Components) -> None:
        self._parts = components

    def show(self, id: str, *, customer: str | None = None) -> dict[str, Any]:
        """What the lake has of an event's id, of an object's path, or of a place in the log such as `0:17`: events, and
        lines that were refused, and the line itself where the log still has it. Starts no JVM."""
        from headwater.upkeep.events import show_event

        return show_event(self._parts, id, customer)

    def plan_correction(
        self,
        id: str,
        *,
        customer: str | None = None,
        checksum: str | None = None,
        size: int | None = None,
        content_type: str | None = None,
        from_bytes: bool = False,
    ) -> "CorrectionPlan":
        """The event that `correct` would send in the place of this one; starts no JVM. With `from_bytes` checksum and
        size are those of the stored bytes."""
        from headwater.upkeep.events import plan_correction

        pointer: dict[str, Any] = {"checksum": checksum, "size": size, "content_type": content_type}
        return plan_correction(self._parts, id, customer=customer, **pointer, from_bytes=from_bytes)

    def correct(self, plan: "CorrectionPlan") -> bool:
        """Send it through the log; the next run takes out what was made of the wrong one, and derives it anew. False
        where there was nothing to correct."""
        from headwater.upkeep.events import correct_event

        return correct_event(self._parts, plan)

    def plan_skip(self, position: str, *, because: str, by: str) -> "SkipPlan":
        """What `skip` would pass over: the line that stands at a place of the log that nobody has read yet; starts no
        JVM."""
        from headwater.upkeep.events import plan_skip

        return plan_skip(self._parts, position, because=because, by=by)

    def skip(self, plan: "SkipPlan") -> None:
        """Have the next run pass over the line, for one that stops the reading: a row of quarantine says so."""
        from headwater.upkeep.events import skip_line

        skip_line(self._parts, plan)
