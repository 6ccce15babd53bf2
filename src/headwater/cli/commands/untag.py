"""`headwater untag`"""

from typing import Any

import click

from headwater.cli.caller import caller
from headwater.cli.session import Session, with_session


@click.command(
    short_help="Let a name of the lake go.",
    help="Let a name of the lake go. What nothing else keeps goes with the next maintenance. A hold is lifted by its "
    "owner alone.",
)
@click.argument("name")
@click.option("--by", metavar="NAME", help="Who lets it go. Default: who calls.")
@click.option("--dry-run", is_flag=True, help="Print what would be let go and change nothing.")
@with_session
def command(session: Session, name: str, by: str | None, dry_run: bool) -> None:
    with session.open() as lake:
        if dry_run:
            session.show(lake.history.plan_untag(name, by=by or caller()).to_dict(), _draw)
        else:
            session.show(lake.history.untag(name, by=by or caller()), _draw)


def _draw(tag: dict[str, Any]) -> None:
    click.echo(f"{tag['name']} would go." if "steps" in tag else f"{tag['name']} is gone.")
