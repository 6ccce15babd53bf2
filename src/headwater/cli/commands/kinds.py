"""`headwater kinds`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="The kinds of file that are taken.",
    help="The kinds of file that are taken, by their endings, and what is derived from each. It needs no lake.",
)
@with_session
def command(session: Session) -> None:
    from headwater.domain.kinds import kinds

    session.show({"kinds": kinds()}, _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, text

    for kind in document["kinds"]:
        endings = " ".join(kind["endings"]) or "(text)"
        say(text(f"{kind['modality']:<9}", "bold"), f" {endings:<16}", text(" " + ", ".join(kind["steps"]), "dim"))
