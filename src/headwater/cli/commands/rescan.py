"""`headwater rescan`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="Announce raw objects that the tables do not know.",
    help="Compare the raw store with the tables and publish an event for each object that never arrived.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be announced and change nothing.")
@with_session
def command(session: Session, dry_run: bool) -> None:
    with session.open() as lake:
        plan = lake.upkeep.plan_rescan()
        if dry_run:
            session.show(plan.to_dict(), _draw_plan)
        else:
            session.show({**plan.to_dict(), "published": lake.upkeep.rescan(plan)}, _draw_done)


def _draw_plan(plan: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say

    for path in plan["orphans"]:
        say(path)
    if plan["orphans"]:
        say(f"{plural(len(plan['orphans']), 'object')} to announce. Do it: headwater rescan")
    else:
        say("The tables know every raw object. Nothing to announce.")
    _draw_foreign(plan)


def _draw_done(done: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say

    say(f"{plural(done['published'], 'object')} announced." + ("  → headwater run --once" if done["published"] else ""))
    _draw_foreign(done)


def _draw_foreign(plan: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say

    if plan["foreign"]:
        say(f"{plural(len(plan['foreign']), 'key')} not of our making left alone, such as {plan['foreign'][0]}")
