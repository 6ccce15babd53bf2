"""`headwater status`"""

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.session import Session, with_session

if TYPE_CHECKING:
    from headwater.flow.drive.pending import Pending


@click.command(
    short_help="How the lake is.",
    help="How the lake is: tables, what is pending, the log, raw objects, quarantine, the index.",
)
@with_session
def command(session: Session) -> None:
    with session.open() as lake:
        session.show(lake.status(), lambda status: _draw(status, lake.pending()))


def _draw(status: dict[str, Any], pending: "Pending") -> None:
    from headwater.cli.output import plural, say, table
    from headwater.domain.quantities import size

    columns = ("table", "rows", "files", "median file", "snapshots")
    rows = [
        (
            found["name"],
            f"{found['rows']:,}",
            f"{found['files']:,}",
            size(found["median_file_bytes"]),
            f"{found['snapshots']:,}",
        )
        for found in status["tables"]
    ]
    table(columns, rows, numbers=columns[1:])
    say("")
    unread = (
        f", and {plural(status['log']['lag'], 'event')} landed that no run has read" if status["log"]["lag"] else ""
    )
    say(f"raw         {plural(status['raw']['objects'], 'object')}, {size(status['raw']['bytes'])}{unread}")
    say(f"log         {plural(status['log']['lag'], 'event')} behind, {plural(status['duplicates'], 'duplicate')} seen")
    if status["log"]["lost"]:
        say(f"            {plural(status['log']['lost'], 'event')} lost by the log{_way('rescan', True)}")
    say(f"index       {_entries(status['index'])}")
    dismissed = f", and {status['dismissed']:,} dismissed" if status["dismissed"] else ""
    held = f"{plural(status['quarantined'], 'row')}{dismissed}"
    say(f"quarantine  {held}{_way('quarantine', status['quarantined'])}")
    counts = [f"{stage} {count:,}" for stage, count in pending.to_dict().items() if count]
    waiting = ", ".join([*counts, *(["a log that is not the one that was read"] if pending.log_anew else [])])
    say(f"pending     {waiting or 'nothing'}{_way('run --once', bool(pending))}")


def _entries(index: dict[str, Any]) -> str:
    from headwater.cli.output import plural

    late = f"{index['stale_by']:,} behind silver.embeddings" if index["stale_by"] else "up to date"
    return f"{plural(index['entries'], 'entry', 'entries')}, {late}"


def _way(command_line: str, needed: int | bool) -> str:
    return f"  → headwater {command_line}" if needed else ""
