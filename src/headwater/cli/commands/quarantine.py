"""`headwater quarantine`"""

from typing import Any, Final

import click

from headwater.cli.session import Session, with_session

_ROWS_SHOWN: Final = 10


@click.command(
    short_help="What could not be processed, and the way out.",
    help="What could not be processed, by reason, with the way out of each.",
)
@click.option("--reason", metavar="REASON", help="Only this one, such as TRUNCATED.")
@with_session
def command(session: Session, reason: str | None) -> None:
    with session.open() as lake:
        session.show(lake.quarantine(reason), draw)


def draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import one_line, say, text

    if not document["rows"]:
        say("Nothing is quarantined.")
    for group in document["reasons"]:
        say(text(f"{group['reason']} × {group['count']:,}", "bold yellow"), f"  {group['way_out']}")
        rows = [row for row in document["rows"] if row["reason"] == group["reason"]]
        for row in rows[:_ROWS_SHOWN]:
            say(f"  {row['object_id'] or row['event_id']}  ({row['step']}) {one_line(row['detail'] or '', 160)}")
        if len(rows) > _ROWS_SHOWN:
            say(f"  … and {len(rows) - _ROWS_SHOWN:,} more (all of them: --json)")
