"""`headwater upgrade`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="Bring an older lake to this format.",
    help="Bring a lake of an older format to this version's, by a plan.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@with_session
def command(session: Session, dry_run: bool) -> None:
    from headwater.closed_lake import plan_upgrade, upgrade

    if dry_run:
        plan = plan_upgrade(session.directory, session.options)
    else:
        plan = upgrade(
            session.directory,
            session.options,
            report=session.note,
            stepped=lambda step: session.note(_line(step.to_dict())),
        )
    session.show({**plan.to_dict(), "applied": not dry_run}, _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say

    if not document["steps"]:
        say(f"The lake has format {document['found']}, the newest this Headwater knows. Nothing to do.")
        return
    for step in document["steps"]:
        say(_line(step))
    say("Done." if document["applied"] else "Do it: headwater upgrade")


def _line(step: dict[str, Any]) -> str:
    return f"format {step['expects']} → {int(step['expects']) + 1}: {step['purpose']}"
