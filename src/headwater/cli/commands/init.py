"""`headwater init`"""

from pathlib import Path
from typing import Any

import click

from headwater.cli.session import DEFAULT_LAKE, Session, with_session


@click.command(short_help="Make a lake.", help="Make a lake in DIR (default ./lake), or check the one that is there.")
@click.argument("directory", required=False, metavar="[DIR]", type=click.Path(path_type=Path))
@with_session
def command(session: Session, directory: Path | None) -> None:
    from headwater.lake import init
    from headwater.settings import FILE_NAME

    target = directory or session.named or Path(DEFAULT_LAKE)
    made = not (target / FILE_NAME).is_file()
    with init(target) as lake:
        session.show({"lake": str(lake.settings.lake), "made": made}, lambda document: _draw(document, target))


def _draw(document: dict[str, Any], target: Path) -> None:
    from headwater.cli.output import say

    say(f"{'Made a lake in' if document['made'] else 'There is a lake in'} {document['lake']}")
    where = "" if target == Path(DEFAULT_LAKE) else f" --lake {target}"
    say(f"Next: headwater{where} put FILE… --customer NAME, then headwater{where} run --once")
