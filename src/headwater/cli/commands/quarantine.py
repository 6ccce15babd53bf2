"""`headwater quarantine` and `headwater quarantine dismiss`"""

from typing import Any, Final

import click

from headwater.cli.caller import caller
from headwater.cli.session import Session, hand_on, with_session

_ROWS_SHOWN: Final = 10


@click.group(
    short_help="What could not be processed, and the way out.",
    help="What could not be processed, by reason, with the way out of each.",
    invoke_without_command=True,
)
@click.option("--reason", metavar="REASON", help="Only this one, such as TRUNCATED.")
@with_session
def command(session: Session, reason: str | None) -> None:
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        with session.open() as lake:
            session.show(lake.quarantine(reason), draw)
        return
    if reason is not None:
        raise click.UsageError("--reason goes behind dismiss.", context)
    hand_on(session)


@command.command(
    "dismiss",
    short_help="Let rows go that nobody is going to mend.",
    help="Let go of rows of quarantine that nobody is going to mend: they are shown and counted apart, are not tried"
    " again and raise no alarm. IDs are of events or objects.",
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--reason", metavar="REASON", help="Only rows of this one; without an ID, all of them.")
@click.option("--because", metavar="TEXT", default="", help="Why nobody is going to mend them; kept with them.")
@click.option("--by", metavar="NAME", help="Who says so. Default: the user who calls.")
@click.option("--undo", is_flag=True, help="Take it back: they wait in quarantine again.")
@click.option("--dry-run", is_flag=True, help="Print which rows and change nothing.")
@with_session
def dismiss(
    session: Session, ids: tuple[str, ...], reason: str | None, because: str, by: str | None, undo: bool, dry_run: bool
) -> None:
    by = "" if undo else by or caller()
    if not (because.strip() or undo or dry_run):
        raise click.UsageError("Say why nobody is going to mend them: --because TEXT", click.get_current_context())
    with session.open() as lake:
        if dry_run:
            plan = lake.quarantine.plan_dismissal(*ids, reason=reason, undo=undo)
        else:
            plan = lake.quarantine.dismiss(*ids, reason=reason, because=because, by=by, undo=undo)
    session.show({**plan.to_dict(), "by": by, "because": because, "applied": not dry_run}, _draw_dismissal)


def draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say, text

    if not document["rows"]:
        say("Nothing is quarantined.")
    for group in document["reasons"]:
        say(text(f"{group['reason']} × {group['count']:,}", "bold yellow"), f"  {group['way_out']}")
        _draw_rows([row for row in document["rows"] if row["reason"] == group["reason"]])
    if document["dismissed"]:
        say(text(f"dismissed: {plural(len(document['dismissed']), 'row')}", "bold"))
        _draw_rows(document["dismissed"])


def _draw_rows(rows: list[dict[str, Any]]) -> None:
    from headwater.cli.output import one_line, say

    for row in rows[:_ROWS_SHOWN]:
        dismissal = f"{row['because']} ({row['dismissed_by']}) – " if "because" in row else ""
        detail = one_line(dismissal + (row["detail"] or ""), 160)
        say(f"  {row['object_id'] or row['event_id']}  ({row['step']}) {detail}")
    if len(rows) > _ROWS_SHOWN:
        say(f"  … and {len(rows) - _ROWS_SHOWN:,} more (all of them: --json)")


def _draw_dismissal(document: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say

    _draw_rows(document["rows"])
    rows = plural(document["count"], "row")
    if not document["count"]:
        say("Nothing of that is there.")
    elif not document["applied"]:
        say(f"{rows} would be {'taken back' if document['undo'] else 'dismissed'}. Do it: the same without --dry-run")
    elif document["undo"]:
        say(f"{rows} taken back. Next: headwater retry")
    else:
        say(f"{rows} dismissed. Back: the same with --undo")
