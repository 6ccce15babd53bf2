"""`headwater backup`"""

from pathlib import Path
from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="Back up catalog and ledger.",
    help="Write the tables' metadata and the ledger to FILE, and tag what it names so that it is kept for"
    " backup.keep_days; safe beside a run. Objects and table files are not in it: back up their stores.",
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@with_session
def command(session: Session, file: Path) -> None:
    from headwater.clock import utc_now
    from headwater.upkeep.backup.backup import back_up

    with session.open() as lake:
        session.show(back_up(lake._components, file, utc_now), _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say

    rows = plural(document["ledger_rows"], "row")
    say(f"{plural(len(document['tables']), 'table')} and {rows} of the ledger are in {document['file']}")
    say(f"It can be restored until {document['serves_until']} (backup.keep_days): tag {document['tag']}")
