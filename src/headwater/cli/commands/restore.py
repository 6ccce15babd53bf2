"""`headwater restore`"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="Restore catalog and ledger.",
    help="Bring back a lost catalog or ledger from a backup; what is there stays as it is.",
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print the plan and restore nothing.")
@click.option("--force", is_flag=True, help="Set back what is there too, though it has moved on.")
@with_session
def command(session: Session, file: Path, dry_run: bool, force: bool) -> None:
    from headwater.closed_lake import plan_restore, restore

    plan = plan_restore(session.directory, file, session.options, force=force).to_dict()
    if dry_run:
        session.show({**plan, "restored": None}, _draw)
        return
    done = restore(session.directory, file, session.options, force=force, report=session.note)
    session.show({**plan, "restored": asdict(done)}, _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say

    say(f"A backup of {document['made_at']}: {plural(len(document['tables']), 'table')}, {document['claims']:,} keys.")
    missing = [each["table"] for each in document["tables"] if each["found"] is None]
    lost = "is lost" if len(missing) == len(document["tables"]) else f"lacks {', '.join(missing)}"
    say(f"The catalog {lost if missing else 'is there'}.")
    say(f"The ledger {'is lost' if document['ledger_lost'] else 'is there'}.")
    for note in document["notes"] if document["restored"] is None else ():
        say(note)
    if done := document["restored"]:
        say(f"Done. {done['claims_from_bronze']:,} keys were added from bronze.events. Next: headwater run --once")
