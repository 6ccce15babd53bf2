"""`headwater sql`"""

from typing import TYPE_CHECKING, Any, Final

import click

from headwater.cli.session import Session, as_of_option, with_session

if TYPE_CHECKING:
    from headwater.domain.ref import Ref

_CELL_WIDTH: Final = 80


@click.command(
    short_help="Ask the tables in SQL.",
    help='Ask the tables in SQL (DuckDB\'s), such as "select customer, text from transcripts".',
)
@click.argument("query")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop the query after so long. Default: the setting sql.timeout_seconds.",
)
@click.option("--limit", metavar="N", type=click.IntRange(1), help="At most so many rows; says if there are more.")
@as_of_option
@with_session
def command(session: Session, query: str, timeout: float | None, limit: int | None, as_of: "Ref | None") -> None:
    with session.open() as lake:
        session.show(lake.sql(query, timeout_seconds=timeout, as_of=as_of, limit=limit), _draw)


def _draw(answer: dict[str, Any]) -> None:
    from headwater.cli.commands.show import print_snapshots, short
    from headwater.cli.output import one_line, plural, say, table

    columns, rows = answer["columns"], answer["rows"]
    numbers = [name for name in columns if rows and isinstance(rows[0][name], int | float)]
    table(columns, [[one_line(short(row[name]), _CELL_WIDTH) for name in columns] for row in rows], numbers)
    say(plural(len(rows), "row") + (", and there are more" if answer.get("more") else ""), stderr=True)
    print_snapshots(answer, stderr=True)
