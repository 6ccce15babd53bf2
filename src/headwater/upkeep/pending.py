"""What each stage has yet to do, told from positions alone: starts no JVM."""

from typing import Any

from headwater.domain.tables import EVENTS
from headwater.errors import Unavailable
from headwater.flow.drive.pending import Pending, find_pending
from headwater.flow.drive.retry_schedule import has_stragglers, is_retry_due
from headwater.flow.log.identity import find_unread
from headwater.flow.map import FLOW
from headwater.storage.tables.read_progress import read_progress
from headwater.upkeep.parts import Parts


def pending_of(parts: Parts) -> Pending:
    return find_pending(
        lambda table: read_progress(parts.settings, table),
        find_unread(parts.log, parts.ledger, read_progress(parts.settings, EVENTS).offsets),
        _index_position(parts),
        retry_due=is_retry_due(parts.ledger, parts.clock()) or has_stragglers(parts.ledger),
        steps_kept=parts.book().steps_kept(),
    )


def stages_of(parts: Parts) -> list[dict[str, Any]]:
    """The map's stages in order, each with how much waits before it: `{"name", "reads", "writes", …, "pending"}`."""
    waits = pending_of(parts).to_dict()
    return [{**stage.to_dict(), "pending": waits.get(stage.name)} for stage in FLOW]


def _index_position(parts: Parts) -> int:
    """Of an index that is down nothing is known, so it has everything yet to get; the other stages go on."""
    try:
        return parts.index.position()
    except Unavailable:
        return 0
