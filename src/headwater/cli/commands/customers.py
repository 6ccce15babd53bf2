"""`headwater customers`"""

from typing import Any, Final

import click

from headwater.cli.session import Session, with_session

_DAY: Final = len("2026-03-02")  # the rest of a time leaves no room for the others in a narrow terminal


@click.command(
    short_help="Whose objects are in the lake.",
    help="Whose objects are in the lake, how many, how large, and from when to when: headwater customers --json",
)
@with_session
def command(session: Session) -> None:
    with session.open() as lake:
        session.show({"customers": lake.customers()}, draw)


def draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, table
    from headwater.domain.quantities import size

    if not document["customers"]:
        say("No customers yet. What was put comes in with: headwater run --once")
        return
    rows = [
        (
            one["customer"],
            f"{one['objects']:,}",
            size(one["bytes"]),
            one["first_at"][:_DAY],
            one["last_at"][:_DAY],
            ", ".join(f"{count:,} {kind}" for kind, count in one["modalities"].items()),
        )
        for one in document["customers"]
    ]
    columns = ("customer", "objects", "bytes", "first", "last", "of which")
    table(columns, rows, numbers=("objects", "bytes"), whole=columns[1:-1])
