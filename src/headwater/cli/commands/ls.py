"""`headwater ls`"""

from typing import Any

import click

from headwater.cli.selection import with_selection
from headwater.cli.session import Session, with_session


@click.command(
    short_help="The objects that are in the lake.",
    help="The objects that are in the lake, the last that came first: headwater ls --customer acme --modality audio",
)
@with_selection
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 10_000), help="How many on a page.")
@click.option(
    "--before", metavar="N", type=click.IntRange(0), help="The next page, by the number that a page ends with."
)
@with_session
def command(session: Session, **chosen: Any) -> None:
    with session.open() as lake:
        session.show(lake.ls(**chosen), draw)


def draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, table
    from headwater.domain.keys import shown_path
    from headwater.domain.quantities import size

    objects = document["objects"]
    if not objects:
        say("No objects that fit. What was put and not run yet comes in with: headwater run --once")
        return
    # The path tells kind and customer, and is what trace and get take.
    rows = [(one["occurred_at"], size(one["size"]), shown_path(one["id"])) for one in objects]
    table(("occurred at", "size", "object"), rows, numbers=("size",), whole=("occurred at", "size"))
    if document["next"] is not None:
        say(f"There are more: the same with --before {document['next']}", stderr=True)
