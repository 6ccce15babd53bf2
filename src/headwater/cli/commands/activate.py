"""`headwater activate`"""

from typing import Any

import click

from headwater.cli.naming import MODEL_HELP, StepType
from headwater.cli.session import Session, with_session


@click.command(
    short_help="Let readers see another model's rows.",
    help="Let search and tables show another model's rows of a step, from the next question on. The way back is the "
    "same command. " + MODEL_HELP,
)
@click.argument("step", type=StepType())
@click.argument("model")
@click.option("--force", is_flag=True, help="Though objects still wait for a model that did not answer.")
@with_session
def command(session: Session, step: str, model: str, force: bool) -> None:
    with session.open() as lake:
        session.show(lake.models.activate(step, model, force=force), _draw)


def _draw(flipped: dict[str, Any]) -> None:
    from headwater.cli.output import say

    again = flipped["before_fingerprint"] == flipped["fingerprint"]
    already = " already; nothing has changed" if again else ""
    say(f"{flipped['step']}: {flipped['active']} ({flipped['fingerprint']}) is active{already}.")
    if flipped["before"] and not again:
        say(f"Flip back: headwater activate {flipped['step']} {flipped['before_fingerprint']}")
        say(f"Let {flipped['before']} go: headwater retire {flipped['step']} {flipped['before_fingerprint']} --dry-run")
