"""`headwater retry`"""

from dataclasses import asdict
from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="Run what is quarantined again.",
    help="Run what is quarantined again, and carry what comes of it on to search.",
)
@click.option("--reason", metavar="REASON", help="Only this one, such as TIMEOUT.")
@click.option("--model", metavar="NAME", help="By this model instead, on the step that it is for.")
@with_session
def command(session: Session, reason: str | None, model: str | None) -> None:
    from headwater.cli.progress import Bars

    with session.open() as lake, Bars({}) as bars:
        retried = lake.retry(reason, model=model, report=bars.advance)
    session.show(asdict(retried), _draw)


def _draw(retried: dict[str, Any]) -> None:
    from headwater.cli.output import say

    if not retried["tried"]:
        say("Nothing to retry.")
        return
    say(f"{retried['tried']:,} tried: {retried['recovered']:,} recovered, {retried['still_quarantined']:,} still held.")
