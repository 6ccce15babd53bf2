"""`lake.models`: which models do which step. Each method mirrors a command and calls one function."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.components import Components
from headwater.domain.model_book import ModelBook
from headwater.upkeep.models.budget import Budget

if TYPE_CHECKING:
    import builtins

    from headwater.upkeep.models.better import Better
    from headwater.upkeep.models.quote import Quote
    from headwater.upkeep.models.replay import Replayed
    from headwater.upkeep.models.retire import RetirePlan

__all__ = ("Budget", "LakeModels")


class LakeModels:
    """`lake.models.replay("transcribe", "faster-whisper")`"""

    def __init__(self, components: Components) -> None:
        self._parts = components

    def list(self) -> list[dict[str, Any]]:
        """Every model that the lake knows, with what it has made; starts no JVM."""
        from headwater.upkeep.models.list import list_models

        return list_models(self._parts.reader, self._parts.settings, self.book())

    def better(self) -> "builtins.list[Better]":
        """Where an earlier default is active: today's, with the quote of its replay; starts no JVM."""
        from headwater.upkeep.models.better import better_models

        return better_models(self._parts)

    def book(self) -> ModelBook:
        """What is known; before the first run, what the settings will begin with."""
        from headwater.upkeep.models.named import settled_book

        return settled_book(self._parts)

    def step_of(self, model: str) -> str:
        """The step that a model of this name is for; InvalidRequest where there is none."""
        from headwater.upkeep.models.named import find_step

        return find_step(self._parts, model)

    def quote(self, step: str, model: str) -> "Quote":
        """What a replay would read, call and cost; starts no JVM."""
        from headwater.upkeep.models.replay import quote_replay

        return quote_replay(self._parts, step, model)

    def replay(
        self,
        step: str,
        model: str,
        *,
        budget: Budget = Budget(),  # noqa: B008  a value
        report: Callable[[str, int], None] | None = None,
        stop: threading.Event | None = None,
    ) -> "Replayed":
        """Bring a model in beside the active one, or go on where it was left; with nothing to do, no Spark."""
        from headwater.upkeep.models.replay import replay_model

        return replay_model(self._parts, step, model, budget, report, stop)

    def compare(self, step: str, one: str, other: str) -> dict[str, Any]:
        """Two models' rows side by side; starts no JVM."""
        from headwater.upkeep.models.compare import compare_models

        return compare_models(self._parts, step, one, other)

    def activate(self, step: str, model: str, *, force: bool = False) -> dict[str, Any]:
        """Let readers see this one's rows from now on; starts no JVM. With `force`, though objects wait for it."""
        from headwater.upkeep.models.activate import activate

        return activate(self._parts, step, model, force=force)

    def plan_retire(self, step: str, model: str) -> "RetirePlan":
        """What `retire` would take away; starts no JVM."""
        from headwater.upkeep.models.retire import plan_retire_by_name

        return plan_retire_by_name(self._parts, step, model)

    def retire(
        self,
        step: str,
        model: str,
        report: Callable[[str], None] | None = None,
        *,
        plan: "RetirePlan | None" = None,
    ) -> "RetirePlan":
        """Take a model out. Conflict, and nothing changed, where it is active or no longer what `plan` has."""
        from headwater.upkeep.models.retire import retire_model

        return retire_model(self._parts, plan or self.plan_retire(step, model), report)
