"""The account of a run: what each stage did, and what each model had to do for it and cost."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater import telemetry
from headwater.flow.spent import Spent, add_efforts


def _nowhere() -> None:
    pass


@dataclass(slots=True)
class Account:
    """`done` and `models` belong to the journal, which `save` writes down; `spent` is the same as sums.

    Stages count from threads of their own.
    """

    done: dict[str, int] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    save: Callable[[], None] = _nowhere
    spent: dict[str, Spent] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, stage: str, done: int) -> None:
        with self._lock:
            self.done[stage] = self.done.get(stage, 0) + done

    def add(self, efforts: Mapping[str, Spent], labels: Mapping[str, str]) -> None:
        """Efforts by tag; steps that ask no model (`labels` does not know them) are left out."""
        with self._lock:
            add_efforts(self.spent, efforts)
            for tag in self.spent.keys() & labels.keys():
                self.models[tag] = {"model": labels[tag], **self.spent[tag].to_dict()}
            if self.models:
                self.save()


def tell_commit(stage: str, rows: int, begun: float, **more: Any) -> None:
    seconds = round(time.monotonic() - begun, 3)
    telemetry.note("stage.committed", stage=stage, rows=rows, seconds=seconds, **more)
