"""Run: what is pending is brought through the stages, alone under the run's lease, noted in the journal.

The stages' own order is `flow.drive.run`; here is when a run begins at all, and what it came to.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headwater.domain.quarantine import Retried
from headwater.upkeep import work
from headwater.upkeep.parts import Parts
from headwater.upkeep.pending import pending_of


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run did, by stage and by model; `started` is False where nothing was pending and no Spark was started."""

    started: bool
    done: dict[str, int]
    models: dict[str, dict[str, Any]] = field(default_factory=dict)


def run(
    parts: Parts,
    *,
    once: bool,
    report: work.Report | None = None,
    stop: threading.Event | None = None,
    listen: Callable[[str], None] | None = None,
    on_start: Callable[[], None] | None = None,
) -> Ran:
    """Until nothing is pending, or with `once=False` until `stop` is set. Whether anything is pending is asked under
    the lease: another run may just have done it. `on_start` is called once nothing but Spark stands before the work."""
    stop = stop or threading.Event()
    with work.alone(parts, "run", stop) as held:
        if once and not pending_of(parts):
            return Ran(False, {})
        with work.recorded(parts, "run", listen) as entry:
            work.check_models(parts, held)
            if on_start is not None:
                on_start()
            begun = work.new_run(parts, held, entry, report, stop)
            done = begun.once() if once else begun.until_stopped()
            entry.interrupted = once and stop.is_set()
            return Ran(True, done, entry.models)


def retry(
    parts: Parts,
    reason: str | None,
    model: str | None,
    report: work.Report | None = None,
    on_start: Callable[[], None] | None = None,
) -> Retried:
    """Derive again what waits in quarantine, and carry on what came of it. Where nothing waits no Spark is started."""
    from headwater.upkeep.quarantine import check_reason, is_any_waiting  # which read tables

    reason = check_reason(reason) if reason else None
    if not is_any_waiting(parts.reader, parts.ledger, reason):
        return Retried(0, 0, 0)
    with work.alone(parts, "retry") as held, work.recorded(parts, "retry") as entry:
        work.check_models(parts, held, model)
        if on_start is not None:
            on_start()
        retried = work.new_run(parts, held, entry, report).retry(reason, model)
    run(parts, once=True, report=report)
    return retried
