"""`headwater flow`"""

from textwrap import wrap
from typing import Any, Final

import click

from headwater.cli.session import Session, with_session

_NAMES_WIDTH: Final = 66  # and what stands before them, in a terminal of 80


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
        _draw_names("reads", stage["reads"])
        _draw_names("writes", stage["writes"])
    say(text("  ▼", "dim"), " search, trace, sql")


def _draw_names(what: str, names: list[str]) -> None:
    from headwater.cli.output import say, text

    for number, line in enumerate(wrap(", ".join(names), _NAMES_WIDTH)):
        say(text(f"  │   {'' if number else what:<8}", "dim"), line)
