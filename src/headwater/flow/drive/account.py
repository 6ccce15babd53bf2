"""The account of a run: what each stage did, and what each model had to do for it and cost."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater import telemetry
from headwater.errors import InternalError
from headwater.flow.map import FLOW, names_counted
from headwater.flow.runner import Committed
from headwater.flow.spent import Spent, add_efforts

# Told after every commit, with the name that is counted and how many; a progress bar or a log line.
Report = Callable[[str, int], None]


def _silent(*_: object) -> None:
    pass


@dataclass(slots=True)
class Account:
    """`done` and `models` belong to the journal, which `save` writes down; `spent` is the same as sums.

    Stages count from threads of their own, under the names that the map has: `names`.
    """

    done: dict[str, int] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    save: Callable[[], None] = _silent
    report: Report = _silent
    names: frozenset[str] = names_counted(FLOW)
    spent: dict[str, Spent] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, name: str, done: int, *, shown: bool = True) -> None:
        if name not in self.names:
            raise InternalError(f"A run counts {name}, which no stage of the map names.")
        with self._lock:
            self.done[name] = self.done.get(name, 0) + done
        if shown:
            self.report(name, done)

    def add(self, efforts: Mapping[str, Spent], labels: Mapping[str, str]) -> None:
        """Efforts by tag; steps that ask no model (`labels` does not know them) are left out."""
        with self._lock:
            add_efforts(self.spent, efforts)
            for tag in self.spent.keys() & labels.keys():
                self.models[tag] = {"model": labels[tag], **self.spent[tag].to_dict()}
            if self.models:
                self.save()

    def record(self, name: str, made: Committed, begun: float) -> None:
        """A batch that is committed: counted, and a line of the log of events."""
        self.count(name, made.rows)
        if made.quarantined is not None:
            self.count("quarantine", made.quarantined)
        if made.quarantined:
            telemetry.note("quarantine.grew", level="warning", stage=name, rows=made.quarantined)
        self.add(made.efforts, made.labels)
        seconds = round(time.monotonic() - begun, 3)
        telemetry.note("stage.committed", **{"stage": name, "rows": made.rows, "seconds": seconds, **made.facts})
