"""`headwater flow`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="The map of stages, and what waits.",
    help="The map: each stage, what it reads and writes, and how much waits before it.",
)
@with_session
def command(session: Session) -> None:
    with session.open() as lake:
        session.show({"stages": lake.flow()}, _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, text

    for number, stage in enumerate(document["stages"]):
        if number:
            say(text("  │", "dim"))
        waits = stage["pending"]
        mark = "" if waits is None else f"  {waits:,} pending" if waits else "  up to date"
        say(text(f"  ● {stage['name']:<7}", "bold"), stage["purpose"], text(mark, "yellow" if waits else "green"))
        if stage["reads"]:
            say(text("  │   reads   ", "dim"), ", ".join(stage["reads"]))
        say(text("  │   writes  ", "dim"), ", ".join(stage["writes"]))
    say(text("  ▼", "dim"), " search, trace, sql")
