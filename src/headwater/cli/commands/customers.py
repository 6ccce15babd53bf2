"""`headwater customers`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="Whose objects are in the lake.",
    help="Whose objects are in the lake, how many, how large, and from when to when: headwater customers --json",
)
@with_session
def command(session: Session) -> None:
    with session.open() as lake:
        session.show({"customers": lake.customers()}, draw)


def draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, size, table

    if not document["customers"]:
        say("No customers yet. What was put comes in with: headwater run --once")
        return
    rows = [
        (
            one["customer"],
            f"{one['objects']:,}",
            size(one["bytes"]),
            one["first_at"],
            one["last_at"],
            ", ".join(f"{count:,} {kind}" for kind, count in one["modalities"].items()),
        )
        for one in document["customers"]
    ]
    columns = ("customer", "objects", "bytes", "first", "last", "of which")
    table(columns, rows, numbers=("objects", "bytes"), whole=("first", "last"))
