"""`headwater retire`"""

from typing import Any

import click

from headwater.cli.naming import MODEL_HELP, StepType
from headwater.cli.session import Session, with_session


@click.command(
    short_help="Remove a model's rows and vectors.",
    help="Remove the rows and vectors of a model that is not active. The memo keeps its answers, so it can come back "
    "without a call. " + MODEL_HELP,
)
@click.argument("step", type=StepType())
@click.argument("model")
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@with_session
def command(session: Session, step: str, model: str, dry_run: bool) -> None:
    with session.open() as lake:
        plan = lake.models.plan_retire(step, model)
        if not dry_run:
            session.note("Starting Spark …")
            lake.models.retire(step, model, report=lambda part: session.note(f"{part} done"), plan=plan)
    session.show({**plan.to_dict(), "applied": not dry_run}, _draw)


def _draw(plan: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say, table

    gone = "Removed" if plan["applied"] else "To be removed"
    say(f"{gone}: {plan['step']} by {plan['model']} ({plan['fingerprint']}).")
    table(("table", "rows"), [(name, f"{rows:,}") for name, rows in plan["rows"].items()], ("rows",))
    say(f"In the index: {plural(plan['vectors'], 'vector')}. The memo keeps its answers.")
    if not plan["applied"]:
        say(f"Do it: headwater retire {plan['step']} {plan['fingerprint']}")
