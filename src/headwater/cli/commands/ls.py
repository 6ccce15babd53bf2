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
    from headwater.cli.output import say, size, table

    objects = document["objects"]
    if not objects:
        say("No objects. What was put comes in with: headwater run --once")
        return
    rows = [
        (one["customer"], one["modality"], one["occurred_at"], size(one["size"]), one["name"], one["id"])
        for one in objects
    ]
    columns = ("customer", "modality", "occurred at", "size", "name")
    table(columns, [row[:5] for row in rows], numbers=("size",), whole=("occurred at", "size"))
    if document["next"] is not None:
        say(f"There are more: the same with --before {document['next']}", stderr=True)
