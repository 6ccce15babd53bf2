"""`headwater maintain`"""

from dataclasses import asdict
from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="Compact files, expire snapshots.",
    help="Compact small files, expire old snapshots, give up uploads that nobody completed; safe beside a run.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@with_session
def command(session: Session, dry_run: bool) -> None:
    with session.open() as lake:
        if dry_run:
            session.show(lake.upkeep.plan_maintenance().to_dict(), _draw_plan)
        else:
            done = lake.upkeep.maintain(report=session.note)
            session.show({"tables": [asdict(table) for table in done]}, _draw_done)


def _draw_plan(plan: dict[str, Any]) -> None:
    from headwater.cli.output import say, table
    from headwater.domain.quantities import size

    columns = ("table", "files", "too small", "snapshots to expire")
    rows = [(care["table"], care["files"], care["compact"], care["expire"]) for care in plan["tables"]]
    table(columns, rows, numbers=columns[1:])
    if plan["memo_objects"]:
        say(f"{plan['memo_objects']:,} objects of the memo are packed.")
    if plan["memo_dropped"]:
        say(f"{plan['memo_dropped']:,} free answers of the memo are older than memo.free_hours, and are dropped.")
    if plan["uploads"]:
        say(f"{plan['uploads']:,} uploads to S3 that nobody completed are given up.")
    if plan["memo_objects"] or plan["uploads"] or any(care["compact"] or care["expire"] for care in plan["tables"]):
        say(f"Files are rewritten towards {size(plan['target_bytes'])}. Do it: headwater maintain")
    else:
        say("Nothing to do.")


def _draw_done(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, table

    if not document["tables"]:
        say("Nothing to do.")
        return
    rows = [
        (
            done["table"],
            f"{done['files_before']:,} → {done['files_after']:,}",
            f"{done['snapshots_before']:,} → {done['snapshots_after']:,}",
        )
        for done in document["tables"]
    ]
    table(("table", "files", "snapshots"), rows)
    if dropped := sum(done["dropped"] for done in document["tables"]):
        say(f"{dropped:,} free answers that were old were dropped from the memo.")
