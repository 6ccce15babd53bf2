"""`headwater init`"""

from pathlib import Path
from typing import Any

import click

from headwater.cli.session import DEFAULT_LAKE, Session, with_session


@click.command(short_help="Make a lake.", help="Make a lake in DIR (default ./lake), or check the one that is there.")
@click.argument("directory", required=False, metavar="[DIR]", type=click.Path(path_type=Path))
@with_session
def command(session: Session, directory: Path | None) -> None:
    from headwater.domain.steps import CHOICES
    from headwater.lake import init
    from headwater.settings import FILE_NAME

    target = directory or session.named or Path(DEFAULT_LAKE)
    made = not (target / FILE_NAME).is_file()
    with init(target) as lake:
        # One that was there has its models in its book, which `headwater models` tells.
        begins = {name: lake.settings.text(step.setting) for name, step in CHOICES.items()} if made else {}
        document = {
            "lake": str(lake.settings.lake),
            "made": made,
            "models": {step: name for step, name in begins.items() if name},
            "fallbacks": lake.settings.fallbacks() if made else [],
        }
        session.show(document, lambda document: _draw(document, target))


def _draw(document: dict[str, Any], target: Path) -> None:
    from headwater.cli.output import say

    say(f"{'Made a lake in' if document['made'] else 'There is a lake in'} {document['lake']}")
    if document["models"]:
        say("Models: " + ", ".join(f"{name} for {step}" for step, name in document["models"].items()))
    for sentence in document["fallbacks"]:
        say(sentence)
    where = "" if target == Path(DEFAULT_LAKE) else f" --lake {target}"
    say(f"Next: headwater{where} put FILE… --customer NAME, then headwater{where} run --once")
