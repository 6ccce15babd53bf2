"""Metrics: the numbers of `status`, `flow` and `quarantine` as OpenMetrics text, and served on loopback beside a run.

Reads   table metadata, the reasons of silver.quarantine, the log's ends, the index, the ledger's journal; no JVM
A family is a name, a type, a help line and its samples; counters end in `_total`, as OpenMetrics wants it.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from headwater.errors import HeadwaterError, Unavailable
from headwater.flow.drive.pending import Pending
from headwater.storage.ledger.ledger import Ledger, Run
from headwater.storage.ledger.read_journal import runs_after
from headwater.upkeep.exclusion import ALL_LEASES, RUN_LEASE, lease_of
from headwater.upkeep.health import status
from headwater.upkeep.parts import Parts
from headwater.upkeep.pending import pending_of
from headwater.upkeep.quarantine import count_reasons

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LOOPBACK: Final = "127.0.0.1"
# What may stand in a Host header: a page of another site that a browser shows here would send its own name.
_NAMES: Final = frozenset({"127.0.0.1", "localhost"})
# It takes some dozen requests to a store: no oftener than this, however many ask.
_FRESH_SECONDS: Final = 5.0
_OUTCOMES: Final = ("done", "interrupted", "failed", "running", "died")
_JOURNAL_LINES: Final = 100
# What is told of a model: the journal's name for it, ours, and the help line.
_MODEL_COUNTERS: Final = (
    ("calls", "calls", "Answers that models were asked for."),
    ("remembered", "remembered", "Answers that the memo spared."),
    ("faults", "faults", "Calls that came to nothing."),
    ("model_seconds", "busy_seconds", "Seconds that they took."),
    ("tokens", "tokens", "Tokens that were billed."),
    ("cost", "cost", "Money, in the currency of the prices."),
)

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    kind: str
    help: str
    samples: Iterable[tuple[Labels, float]]

    def lines(self) -> Iterator[str]:
        yield f"# TYPE {self.name} {self.kind}"
        if unit := next((unit for unit in ("bytes", "seconds") if self.name.endswith(f"_{unit}")), None):
            yield f"# UNIT {self.name} {unit}"
        yield f"# HELP {self.name} {_escaped(self.help)}"
        suffix = "_total" if self.kind == "counter" else ""
        for labels, value in self.samples:
            pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{self.name}{suffix}{f'{{{pairs}}}' if pairs else ''} {value:.15g}"


def metrics_of(parts: Parts) -> str:
    """Of a lake as it is now; starts no JVM."""
    state = status(parts.reader, parts.log, parts.index, parts.ledger)
    reasons = count_reasons(parts.reader, parts.ledger)
    return metrics(state, pending_of(parts), reasons, parts.ledger, now=parts.clock())


def metrics(
    status: Mapping[str, Any], pending: Pending, reasons: Mapping[str, int], ledger: Ledger, *, now: datetime
) -> str:
    """The whole text, `# EOF` included."""
    families = [*_tables(status), *_flow(status, pending, reasons), *_runs(ledger, now), *_models(ledger)]
    return "\n".join([line for family in families for line in family.lines()] + ["# EOF", ""])


def _tables(status: Mapping[str, Any]) -> Iterator[Family]:
    columns = (
        ("rows", "rows", "Rows of the table."),
        ("files", "files", "Data files of the table."),
        ("median_file_bytes", "median_file_bytes", "The median size of its data files."),
        ("snapshots", "snapshots", "Snapshots that are kept."),
    )
    for column, name, purpose in columns:
        samples = [({"table": line["name"]}, line[column]) for line in status["tables"]]
        yield Family(f"headwater_table_{name}", "gauge", purpose, samples)


def _flow(status: Mapping[str, Any], pending: Pending, reasons: Mapping[str, int]) -> Iterator[Family]:
    waiting: list[tuple[Labels, float]] = [({"stage": stage}, count) for stage, count in pending.to_dict().items()]
    held: list[tuple[Labels, float]] = [({"reason": reason}, count) for reason, count in reasons.items()]
    yield Family("headwater_pending", "gauge", "What a stage has yet to do.", waiting)
    yield Family(
        "headwater_log_lag", "gauge", "Events of the log that bronze has not read.", _one(status["log"]["lag"])
    )
    yield Family("headwater_log_lost", "gauge", "Events it dropped unread.", _one(status["log"]["lost"]))
    yield Family("headwater_duplicates", "counter", "Events seen again.", _one(status["duplicates"]))
    yield Family("headwater_quarantined", "gauge", "Rows in quarantine, not dismissed.", _one(status["quarantined"]))
    yield Family("headwater_quarantined_by_reason", "gauge", "The same, by reason.", held)
    yield Family("headwater_dismissed", "gauge", "Rows in quarantine that were dismissed.", _one(status["dismissed"]))
    yield Family("headwater_index_entries", "gauge", "Entries of the index.", _one(status["index"]["entries"]))
    yield Family("headwater_index_stale", "gauge", "Vectors it has yet to take in.", _one(status["index"]["stale_by"]))
    yield Family("headwater_raw_objects", "gauge", "Objects that events name.", _one(status["raw"]["objects"]))
    yield Family("headwater_raw_bytes", "gauge", "Their bytes.", _one(status["raw"]["bytes"]))


def _runs(ledger: Ledger, now: datetime) -> Iterator[Family]:
    """The last of each kind. What has no outcome is at work if the lease is held, and else was killed."""
    last: dict[str, Run] = {}
    for run in ledger.runs(_JOURNAL_LINES):
        last.setdefault(run.kind, run)
    lease_now = ledger.clock(lambda: now)()
    held = {name for name in ALL_LEASES if ledger.holder(name, lease_now) is not None}
    unfinished = {kind: "running" if lease_of(kind) in held else "died" for kind in last}
    outcomes = {kind: run.outcome or unfinished[kind] for kind, run in last.items()}
    flags: list[tuple[Labels, float]] = [
        ({"kind": kind, "outcome": outcome}, float(outcome == found))
        for kind, found in outcomes.items()
        for outcome in dict.fromkeys((*_OUTCOMES, found))
    ]
    ages: list[tuple[Labels, float]] = [
        ({"kind": kind}, max(0.0, (now - (run.finished_at or run.started_at)).total_seconds()))
        for kind, run in last.items()
    ]
    yield Family("headwater_last_run", "gauge", "1 for what became of the last one of its kind.", flags)
    yield Family("headwater_last_run_age_seconds", "gauge", "Since it ended, or began if it has not.", ages)
    yield Family("headwater_at_work", "gauge", "1 while a run holds the lake.", _one(float(RUN_LEASE in held)))


def _models(ledger: Ledger) -> Iterator[Family]:
    """Over every run in the journal, so that a counter never goes back."""
    sums = _sums.setdefault(ledger, _Sums()).read(ledger)
    for column, name, purpose in _MODEL_COUNTERS:
        samples = [({"step": step, "model": model}, float(counts[column])) for (step, model), counts in sums.items()]
        yield Family(f"headwater_model_{name}", "counter", purpose, samples)


Effort = defaultdict[tuple[str, str], "Counter[str]"]  # by step and model


@dataclass(slots=True)
class _Sums:
    """What models did in runs that are over, up to a line of the journal: no line that is over is read twice."""

    until: int = 0
    open: set[int] = field(default_factory=set)  # before that line, and not over; of who was killed it stays so
    ended: Effort = field(default_factory=lambda: defaultdict(Counter))

    def read(self, ledger: Ledger) -> Effort:
        """With what has come since, and what is under way."""
        runs = runs_after(ledger, self.until, self.open)
        under_way: Effort = defaultdict(Counter)
        for run in runs:
            _add(under_way if run.outcome is None else self.ended, run)
        self.open = {run.id for run in runs if run.outcome is None}
        self.until = max((run.id for run in runs), default=self.until)
        both: Effort = defaultdict(Counter)
        for efforts in (self.ended, under_way):
            for key, counts in efforts.items():
                both[key].update(counts)
        return both


def _add(efforts: Effort, run: Run) -> None:
    for tag, model in (run.detail.get("models") or {}).items():
        counts = efforts[tag.partition("/")[0], str(model.get("model"))]
        for column, _, _ in _MODEL_COUNTERS:
            counts[column] += model.get(column) or 0


_sums: "WeakKeyDictionary[Ledger, _Sums]" = WeakKeyDictionary()


def _one(value: float) -> list[tuple[Labels, float]]:
    return [({}, value)]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@contextmanager
def serving(port: int, render: Callable[[], str]) -> Iterator[int]:
    """GET /metrics on loopback until the block ends; gives the port, which is a free one where 0 was asked for."""
    handler = type("Handler", (_Handler,), {"render": staticmethod(_remembering(render))})
    try:
        server = ThreadingHTTPServer((LOOPBACK, port), handler)
    except OSError as error:
        raise Unavailable(f"Port {port} cannot be had for metrics: {error.strerror}. Choose another.") from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _remembering(render: Callable[[], str]) -> Callable[[], str]:
    """One at a time, because the parts asked are not made for many threads; and not twice in a few seconds."""
    lock = threading.Lock()
    held: tuple[float, str] | None = None

    def answer() -> str:
        nonlocal held
        with lock:
            if held is None or time.monotonic() - held[0] > _FRESH_SECONDS:
                held = (time.monotonic(), render())
            return held[1]

    return answer


class _Handler(BaseHTTPRequestHandler):
    render: ClassVar[Callable[[], str]]
    timeout = 10  # of a client that connects and says nothing

    def do_GET(self) -> None:
        if (self.headers.get("Host") or "").partition(":")[0] not in _NAMES:
            self._answer(403, "text/plain; charset=utf-8", "Ask by 127.0.0.1 or localhost.\n")
        elif self.path.partition("?")[0] != "/metrics":
            self._answer(404, "text/plain; charset=utf-8", "There is only /metrics.\n")
        else:
            self._answer_metrics()

    def _answer_metrics(self) -> None:
        try:
            text = type(self).render()
        except HeadwaterError as error:
            self._answer(error.http_status, "text/plain; charset=utf-8", f"{error}\n")
        else:
            self._answer(200, CONTENT_TYPE, text)

    def _answer(self, status: int, content_type: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in (("Content-Type", content_type), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape every few seconds is not worth a line."""
