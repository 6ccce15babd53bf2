"""`headwater event show`, `headwater event correct` and `headwater event skip`"""

from typing import Any

import click

from headwater.cli.caller import caller
from headwater.cli.known import known
from headwater.cli.session import Session, hand_on, with_session

_LINE_LETTERS = 160


@click.group(
    short_help="Look at one event, correct it, or pass over it.",
    help="One event, by its id or its place in the log.",
    invoke_without_command=True,
)
@with_session
def command(session: Session) -> None:
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        raise click.UsageError("Do what with which event? Say show, correct or skip.", context)
    hand_on(session)


@command.command(
    "show",
    short_help="What the lake has of an event.",
    help="What the lake has of an event's ID, an object's PATH, or a POSITION in the log such as 0:17 (partition 0,"
    " offset 17).",
)
@click.argument("name", metavar="ID|PATH|POSITION")
@click.option("--customer", metavar="NAME", help="Whose, where several customers have an event of that id.")
@with_session
def show(session: Session, name: str, customer: str | None) -> None:
    with session.open() as lake:
        session.show(lake.events.show(name, customer=customer), _draw)


@command.command(
    "correct",
    short_help="Send an event that stands in the place of a wrong one.",
    help="Send an event that corrects a wrong one, about the same object. The next run takes out what was made of the"
    " wrong one, and derives the object anew.",
)
@click.argument("name", metavar="ID|PATH|POSITION")
@click.option("--customer", metavar="NAME", help="Whose, where several customers have an event of that id.")
@click.option("--checksum", metavar="SHA256", help="What the bytes hash to.")
@click.option("--size", type=click.IntRange(min=0), metavar="BYTES", help="How many bytes there are.")
@click.option("--content-type", metavar="TYPE", help="What they are, such as audio/wav.")
@click.option("--from-bytes", is_flag=True, help="Checksum and size as the stored bytes tell them.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent and change nothing.")
@with_session
def correct(
    session: Session,
    name: str,
    customer: str | None,
    checksum: str | None,
    size: int | None,
    content_type: str | None,
    from_bytes: bool,
    dry_run: bool,
) -> None:
    pointer: dict[str, Any] = {"checksum": checksum, "size": size, "content_type": content_type}
    with session.open() as lake:
        plan = lake.events.plan_correction(name, customer=customer, **pointer, from_bytes=from_bytes)
        sent = not dry_run and lake.events.correct(plan)
    session.show({**plan.to_dict(), "sent": sent}, _draw_correction)


@command.command(
    "skip",
    short_help="Pass over a line of the log that stops the reading.",
    help="Pass over the line at a POSITION of the log, such as 0:17, that was not read yet: its bytes are not looked"
    " at, and a row of quarantine says so.",
)
@click.argument("position", metavar="POSITION")
@click.option("--because", metavar="TEXT", default="", help="Why; kept with it.")
@click.option("--by", metavar="NAME", help="Who says so. Default: the user who calls.")
@click.option("--dry-run", is_flag=True, help="Print which line and change nothing.")
@with_session
def skip(session: Session, position: str, because: str, by: str | None, dry_run: bool) -> None:
    if not because.strip():
        raise click.UsageError("Say why it is passed over: --because TEXT", click.get_current_context())
    with session.open() as lake:
        plan = lake.events.plan_skip(position, because=because, by=by or caller())
        if not dry_run:
            lake.events.skip(plan)
    session.show({**plan.to_dict(), "applied": not dry_run}, _draw_skip)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import one_line, say, text

    for event in document["events"]:
        place = event["pointer"]
        say(text(event["event_id"], "bold"), f"  {event['customer']}  {event['modality']}  {event['occurred_at']}")
        say(f"  {place['path']}  {place['size']:,} bytes  {place['content_type'] or ''}  sha256 {place['checksum']}")
        say(f"  log {event['log_partition']}:{event['log_offset']}, taken in {event['bronze_at']}")
        if about := known(event):
            say(f"  {about}")
        if event["corrected_by"]:
            say(text(f"  corrected by {event['corrected_by']}", "yellow"))
        if event["corrected"]:
            say(f"  stands in the place of {', '.join(event['corrected'])}")
    if document["line"] and not document["events"]:
        say(one_line(document["line"]["value"], _LINE_LETTERS))
    for row in document["quarantined"]:
        where = "" if row["log_offset"] is None else f"  log {row['log_partition']}:{row['log_offset']}"
        say(text(f"{row['event_id']}  {row['step']}: {row['reason']}", "yellow"), f"{where}  {row['detail'] or ''}")


def _draw_correction(document: dict[str, Any]) -> None:
    from headwater.cli.output import say

    for name, (before, after) in document["changes"].items():
        say(f"{name}: {before} → {after}")
    sent = document["event"]["event_id"]
    if not document["changes"]:
        say("The lake has it so. Nothing to correct.")
    elif document["sent"]:
        say(f"{sent} sent.  → headwater run --once")
    else:
        say(f"{sent} would be sent. Do it: the same without --dry-run")


def _draw_skip(document: dict[str, Any]) -> None:
    from headwater.cli.output import one_line, say

    place = f"{document['partition']}:{document['offset']}"
    say(one_line(document["line"], _LINE_LETTERS))
    if document["applied"]:
        say(f"{place} is passed over by the next run.  → headwater run --once")
    else:
        say(f"{place} would be passed over. Do it: the same without --dry-run")
