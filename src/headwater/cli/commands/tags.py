"""`headwater tags`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(short_help="The names of the whole lake.", help="The names of the whole lake, the latest first.")
@with_session
def command(session: Session) -> None:
    with session.open() as lake:
        session.show({"tags": lake.history.tags()}, _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, text

    for tag in document["tags"]:
        ends = f", ended {tag['until']}" if tag["ended"] else f", until {tag['until']}" if tag["until"] else ""
        say(text(tag["name"], "bold"), text(f"  {tag['kind']} of {tag['by']}, {tag['made_at']}{ends}  {tag['note']}"))
    if not document["tags"]:
        say("No tag yet. Name what the lake is now: headwater tag NAME")
