"""`headwater retry`"""

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.session import Session, with_session

if TYPE_CHECKING:
    from headwater.lake import Lake


@click.command(
    short_help="Run what is quarantined again.",
    help="Run what is quarantined again, and carry what comes of it on to search.",
)
@click.option("--reason", metavar="REASON", help="Only this one, such as TIMEOUT.")
@click.option("--model", metavar="NAME", help="By this model instead, on the step that it is for; seen once active.")
@with_session
def command(session: Session, reason: str | None, model: str | None) -> None:
    from headwater.cli.progress import Bars
    from headwater.upkeep.quarantine import check_reason

    reason = check_reason(reason) if reason else None
    with session.open() as lake:
        step = lake.models.step_of(model) if model else None  # an unknown one is refused before anything starts
        with Bars({}) as bars:
            start = partial(session.note, "Starting Spark …")
            retried = lake.quarantine.retry(reason, model=model, report=bars.advance, on_start=start)
        hidden = model is not None and step is not None and not _is_seen(lake, step, model)
    session.show(asdict(retried), lambda document: _draw(document, (step, model) if hidden else None))


def _is_seen(lake: "Lake", step: str, model: str) -> bool:
    active = lake.models.book().active(step)
    return active is not None and model in {active.name, active.label, active.fingerprint}


def _draw(retried: dict[str, Any], hidden: tuple[str | None, str | None] | None) -> None:
    from headwater.cli.output import say

    if not retried["tried"]:
        say("Nothing to retry.")
        return
    say(f"{retried['tried']:,} tried: {retried['recovered']:,} recovered, {retried['still_quarantined']:,} still held.")
    if retried["still_quarantined"]:
        say("Why, and the way out: headwater quarantine")
    if hidden and retried["recovered"]:
        step, model = hidden
        say(f"Readers see {model} once it has done every object: headwater replay {step} --model {model}")
        say(f"and then: headwater activate {step} {model}")
