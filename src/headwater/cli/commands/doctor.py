"""`headwater doctor`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session
from headwater.errors import Unavailable


@click.command(
    short_help="Is what a lake needs there, and does it answer?",
    help="Look whether Java, jars, disk, the parts of the lake and its models are there and answer; changes nothing.",
)
@with_session
def command(session: Session) -> None:
    from headwater.closed_lake import doctor

    findings = [finding.to_dict() for finding in doctor(session.directory, session.options)]
    bad = sum(finding["state"] == "bad" for finding in findings)
    session.show({"well": not bad, "findings": findings}, _draw)
    if bad:
        click.get_current_context().exit(Unavailable.exit_code)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, text

    colours = {"ok": "green", "warn": "yellow", "bad": "red"}
    for found in document["findings"]:
        say(text(f"{found['state']:<5}", colours[found["state"]]), f"{found['about']:<20}{found['detail']}")
        if found["next_move"]:
            # Not below the detail: it holds a command, which is to stay on one line if it can.
            say(f"{'':<5}→ {found['next_move']}")
