"""`headwater activate`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="Let readers see another model's rows.",
    help="Let search and tables show another model's rows of a step, from the next question on. So is flipping back.",
)
@click.argument("step")
@click.argument("model")
@with_session
def command(session: Session, step: str, model: str) -> None:
    with session.open() as lake:
        session.show(lake.models.activate(step, model), _draw)


def _draw(flipped: dict[str, Any]) -> None:
    from headwater.cli.output import say

    say(f"{flipped['step']}: {flipped['active']} ({flipped['fingerprint']}) is active.")
    if flipped["before"] and flipped["before_fingerprint"] != flipped["fingerprint"]:
        say(f"Flip back: headwater activate {flipped['step']} {flipped['before_fingerprint']}")
