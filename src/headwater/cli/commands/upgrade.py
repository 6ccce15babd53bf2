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
    from headwater.components import Components
    from headwater.settings import load
    from headwater.upkeep.task import apply
    from headwater.upkeep.upgrade import UpgradeLake

    components = Components(load(session.directory, session.options))
    task = UpgradeLake(components)
    plan = task.plan()
    if not dry_run:
        apply(task, components, plan, report=session.note, stepped=lambda step, _: session.note(_told(step.to_dict())))
    session.show({**plan.to_dict(), "applied": not dry_run}, _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say

    if not document["steps"]:
        say(f"The lake has format {document['found']}, the newest this Headwater knows. Nothing to do.")
        return
    for step in document["steps"]:
        say(_told(step))
    say("Done." if document["applied"] else "Do it: headwater upgrade")


def _told(step: dict[str, Any]) -> str:
    return f"format {step['expects']} → {int(step['expects']) + 1}: {step['purpose']}"
