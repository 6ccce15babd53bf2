"""`headwater migrate`"""

from pathlib import Path
from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="Move the lake to other stores.",
    help="Move the lake's parts to where another headwater.toml says: copied, verified, then switched. Killed half-way,"
    " call it again. What FILE does not name stays as it is.",
)
@click.option("--to", "file", metavar="FILE", required=True, type=click.Path(path_type=Path), help="The new settings.")
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@with_session
def command(session: Session, file: Path, dry_run: bool) -> None:
    from headwater.closed_lake import migrate, plan_migration

    if dry_run:
        plan = plan_migration(session.directory, file, session.options)
        session.show({**plan.to_dict(), "refs": [], "applied": False}, _draw)
    else:
        session.show(migrate(session.directory, file, session.options, report=session.note).to_dict(), _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, table
    from headwater.domain.quantities import size

    if not document["parts"]:
        say("No part would move." if document["changed"] else "The lake is there already. Nothing to do.")
    for part in document["parts"]:
        say(f"{part['setting']}: {part['before']} → {part['after']} ({part['how']})")
    for name, change in document["changed"].items():
        say(f"{name}: {change}")
    if document["tables"]:
        columns = ("table", "rows", "snapshots", "refs", "files", "bytes")
        rows = [(t["table"], t["rows"], t["snapshots"], " ".join(t["refs"]), t["files"], size(t["bytes"]))
                for t in document["tables"]]  # fmt: skip
        table(columns, rows, numbers=("rows", "snapshots", "files", "bytes"))
    for name in ("raw", "memo"):
        if document[name]["objects"]:
            say(f"{name}: {document[name]['objects']:,} objects, {size(document[name]['bytes'])}")
    if document["unread"]:
        say(f"{document['unread']:,} events in the log are unread. First: headwater run --once")
    elif document["applied"]:
        say(f"Done; {len(document['refs'])} branches and tags have the same rows. The old parts are still there.")
    elif document["parts"] or document["changed"]:
        say("Do it: the same without --dry-run")
