"""`headwater tag`"""

from datetime import datetime
from typing import Any

import click

from headwater.cli.caller import caller
from headwater.cli.session import Moment, Session, with_session


@click.command(
    short_help="Name what the whole lake is now.",
    help="Name what the whole lake is now: a snapshot of every table, and its models. --as-of NAME reads it again, "
    "until it is untagged. With --until it is a pin, which ends; with --hold nobody but its owner lifts it.",
    epilog="""Examples:

\b
  headwater tag before-import
  headwater tag run-17 --until 2027-01-31 --note "trained on this"
  headwater sql "select count(*) from messages" --as-of before-import""",
)
@click.argument("name")
@click.option("--note", default="", help="What it is for.")
@click.option("--until", type=Moment(), metavar="TIME", help="How long it is kept. Default: until it is untagged.")
@click.option("--hold", is_flag=True, help="Nobody but who made it may lift it.")
@click.option("--by", metavar="NAME", help="Whose it is. Default: who calls.")
@click.option("--dry-run", is_flag=True, help="Print which snapshots and change nothing.")
@with_session
def command(
    session: Session, name: str, note: str, until: datetime | None, hold: bool, by: str | None, dry_run: bool
) -> None:
    how: dict[str, Any] = {"by": by or caller(), "note": note, "until": until, "hold": hold}
    with session.open() as lake:
        if dry_run:
            session.show(lake.history.plan_tag(name, **how).to_dict(), draw)
        else:
            session.show(lake.history.tag(name, **how), draw)


def draw(tag: dict[str, Any]) -> None:
    from headwater.cli.output import say, text

    ends = f", until {tag['until']}" if tag["until"] else ""
    say(text(tag["name"], "bold"), text(f"  {tag['kind']} of {tag['by']}, {tag['made_at']}{ends}  {tag['note']}"))
    for table in tag["snapshots"]:
        number = "nothing in it yet" if table["snapshot_id"] is None else table["snapshot_id"]
        say(text(f"  {table['table']}  {number}", "dim"))
    if "steps" in tag:
        say("Nothing was changed.")
