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
@click.option("--dry-run", is_flag=True, help="Print the plan and write nothing.")
@with_session
def command(session: Session, file: Path, dry_run: bool) -> None:
    with session.open() as lake:
        if dry_run:
            session.show(lake.upkeep.plan_backup(file).to_dict(), _draw_plan)
        else:
            session.show(lake.upkeep.backup(file), _draw)


def _draw_plan(document: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say

    (step,) = document["steps"]
    say(f"{plural(len(document['tables']), 'table')} and the ledger to {document['file']}, kept by tag {step['tag']}")
    say(f"It could be restored until {step['serves_until']} (backup.keep_days). Do it: the same without --dry-run")


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say

    rows = plural(document["ledger_rows"], "row")
    say(f"{plural(len(document['tables']), 'table')} and {rows} of the ledger are in {document['file']}")
    say(f"It can be restored until {document['serves_until']} (backup.keep_days): tag {document['tag']}")
