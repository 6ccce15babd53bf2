"""The port of a stage in a run: what it is given, and what one batch of it came to.

A new stage is a subclass of `StageRunner` that the map names; only `run_batch` must be written.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from headwater.clock import Clock
from headwater.domain.model_book import ModelBook
from headwater.flow.map import Stage
from headwater.flow.spent import Spent
from headwater.settings import Settings
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import read_book
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.tables.writer import TableWriter


@dataclass(frozen=True, slots=True)
class RunContext:
    """The live parts of a run, which all its stages share. Once `stop` is set no batch is begun."""

    writer: TableWriter
    ledger: Ledger
    log: PointerLog
    index: VectorIndex
    clock: Clock
    stop: threading.Event
    # While it is entered, that stage of the run begins no batch.
    held_back: Callable[[Stage], AbstractContextManager[None]] = lambda _: nullcontext()

    @property
    def spark(self) -> SparkSession:
        return self.writer.spark

    @property
    def settings(self) -> Settings:
        return self.writer.settings

    @property
    def workers(self) -> int:
        """Asked each time: a cluster's executors come and go."""
        return int(self.spark.sparkContext.defaultParallelism)

    def book(self) -> ModelBook:
        """Read each time: a model that was activated or retired meanwhile counts from the next batch on."""
        return read_book(self.ledger)


@dataclass(frozen=True, slots=True)
class Committed:
    """One batch, as it is counted. `quarantined` is None where the stage sets nothing aside. `efforts` and `labels`, by
    tag, are what models had to do; `facts` stand in the line `stage.committed` of the log of events."""

    rows: int
    quarantined: int | None = None
    efforts: Mapping[str, Spent] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


# Counts what was committed, under one of the names of the stage, and wakes who reads it: the name, what, since when.
Record = Callable[[str, Committed, float], None]


class StageRunner:
    """`record` is for what a stage commits beside its batches, on threads of its own."""

    def __init__(self, context: RunContext, record: Record) -> None:
        self.context = context
        self.record = record

    def start(self) -> None:
        """The run begins to take batches."""

    def run_batch(self) -> Committed | None:
        """Do and commit one batch; None where there is nothing to do."""
        raise NotImplementedError

    def run_idle(self) -> bool:
        """There was no batch, and nothing before this stage is at work: do what waits for that. Whether it did any."""
        return False

    def check(self) -> None:
        """Raise what has ended a thread of its own."""

    def finish(self) -> None:
        """No batch will come any more: do what is left beside them."""

    def require_done(self) -> None:
        """Raise what keeps its work undone, at the end of a run that is to leave nothing behind."""

    def stop(self) -> None:
        """Leave what is under way as it is. Twice is once."""
