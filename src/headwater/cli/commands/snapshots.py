"""`headwater snapshots`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="A table's snapshots.",
    help="A table's snapshots, the latest first: when, what came and went, and which names hold it.",
)
@click.argument("table")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True)
@with_session
def command(session: Session, table: str, limit: int) -> None:
    with session.open() as lake:
        session.show(lake.history.snapshots(table, limit=limit), _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, text

    for each in document["snapshots"]:
        gone = f" -{each['deleted_records']:,}" if each["deleted_records"] else ""
        change = f"+{each['added_records']:,}{gone} rows, {each['total_records']:,} in all"
        say(text(each["id"], "bold"), text(f"  {each['at']}  {change}  {' '.join(each['refs'])}"))
    if not document["snapshots"]:
        say("No snapshot yet: nothing ever came into it.")
    if document["older"]:
        say(f"And {document['older']:,} older: --limit")
