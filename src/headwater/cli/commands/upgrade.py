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
    from headwater.upkeep.format import plan_upgrade, upgrade

    components = Components(load(session.directory, session.options))
    plan = plan_upgrade(components.ledger) if dry_run else upgrade(components, components.clock, session.note)
    steps = [{"from": version, "purpose": step.purpose} for version, step in plan.steps]
    session.show({"found": plan.found, "wanted": plan.wanted, "steps": steps, "applied": not dry_run}, _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say

    if not document["steps"]:
        say(f"The lake has format {document['found']}, the newest this Headwater knows. Nothing to do.")
        return
    for step in document["steps"]:
        say(f"format {step['from']} → {step['from'] + 1}: {step['purpose']}")
    say("Done." if document["applied"] else "Do it: headwater upgrade")
