"""Work: which models do which steps of which objects, as values that travel to Spark's workers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from headwater.flow.derive.sandbox import StepJob
from headwater.settings import Settings


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step with a model that does it; several may do the same step, each into rows of its own.

    `position` names how far into bronze.events the two have come. Reading a header costs less than looking in the memo.
    `dimension` is how long a vector of it must be, where the model tells. `standby` says that another one is active.
    """

    name: str
    table: str
    model_name: str
    label: str
    fingerprint: str
    position: str
    setting: str | None
    memoised: bool
    paid: bool
    concurrency: int
    dimension: int | None = None
    standby: bool = False

    @property
    def tag(self) -> str:
        return f"{self.name}/{self.fingerprint}"

    def to_job(self) -> StepJob:
        return StepJob(self.tag, self.name, self.setting, self.model_name if self.setting else None, self.standby)


@dataclass(frozen=True, slots=True)
class Work:
    """All that travels to the workers. `now` stamps every row of the batch; `share` is how many workers there are.

    `reload` names a wish to start anew: what a worker knows of endpoints that were down is forgotten, once a name.
    `patience` is how many seconds the batch waits for one object; None is as long as the limits say. `purse` is what
    each worker may spend; `alone` says that it has one object in hand at a time, whatever its models would bear.
    """

    steps: Mapping[str, tuple[PlannedStep, ...]]  # by modality
    settings: Settings
    now: datetime
    share: int = 1
    reload: str = ""
    patience: float | None = None
    purse: float | None = None
    alone: bool = False

    def planned(self) -> dict[str, PlannedStep]:
        """By tag."""
        return {step.tag: step for steps in self.steps.values() for step in steps}

    def labels(self) -> dict[str, str]:
        """Of the models that can be chosen, by tag."""
        return {tag: step.label for tag, step in self.planned().items() if step.setting}

    def only(self, tags: Collection[str]) -> "Work":
        kept = {modality: tuple(s for s in steps if s.tag in tags) for modality, steps in self.steps.items()}
        return replace(self, steps=kept)

    def hurried(self) -> "Work":
        """For a batch that others wait for: nothing of it may keep them waiting for long."""
        return replace(self, patience=self.settings.number("run.patience_seconds"))

    @property
    def threads(self) -> int:
        """How many objects a worker may have under way at once."""
        if self.alone:
            return 1
        most = max((step.concurrency for step in self.planned().values()), default=1)
        return max(1, -(-most // self.share))
