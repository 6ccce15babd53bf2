"""Named fault points in the paths that write, and one where a reader has planned; tests arm them, nothing else does.

`HEADWATER_FAULT=bronze.staged` kills the process with SIGKILL the first time that point is reached,
`HEADWATER_FAULT=bronze.staged:3` the third time, and `HEADWATER_FAULT=bronze.staged:1:stop` freezes it there, until
somebody sends it SIGCONT. Reached in a worker, it is the driver that dies: `arm` tells workers whom to kill. Unarmed, a
point costs one comparison with None.
"""

import os
import signal

POINTS = (
    "commit.proposed",
    "commit.written",
    "commit.landed",
    "land.stored",
    "log.identified",
    "log.written",
    "log.merging",
    "log.merged",
    "bronze.keyed",
    "quarantine.staged",
    "quarantine.published",
    "bronze.quarantined",
    "bronze.staged",
    "bronze.published",
    "derive.called",
    "derive.memoised",
    "derive.quarantined",
    "derive.staged",
    "derive.published",
    "corrected.found",
    "corrected.unindexed",
    "corrected.removed",
    "corrected.marked",
    "embed.called",
    "embed.memoised",
    "embed.staged",
    "embed.published",
    "index.upserted",
    "work.begun",
    "task.begun",
    "task.done",
    "task.ended",
    "maintain.compacted",
    "backup.pinned",
    "memo.merged",
    "upgrade.claims",
    "sql.planned",
    "retire.planned",
    "retire.begun",
    "migrate.object",
    "migrate.file",
    "migrate.registered",
    "migrate.noted",
    "migrate.ledger",
    "migrate.verified",
    "migrate.moved",
    "migrate.switched",
)

_VICTIM = "HEADWATER_FAULT_VICTIM"
_ARMED = os.environ.get("HEADWATER_FAULT")
_reached = 0


def point(name: str) -> None:
    """Die here if a test asked for it."""
    if _ARMED is None:
        return
    armed, count, how = (*_ARMED.split(":"), "", "")[:3]
    if armed != name:
        return
    global _reached
    _reached += 1
    if _reached == int(count or 1) or (_reached > int(count or 1) and how != "stop"):
        blow = signal.SIGSTOP if how == "stop" else signal.SIGKILL
        os.kill(int(os.environ.get(_VICTIM, os.getpid())), blow)


def arm() -> None:
    """Called by a driver before it starts workers, which inherit the environment."""
    if _ARMED is not None:
        os.environ[_VICTIM] = str(os.getpid())
