"""`headwater label`"""

from typing import Any

import click

from headwater.cli.caller import caller
from headwater.cli.session import Session, with_session
from headwater.errors import InvalidRequest


@click.command(
    short_help="Say more of an object, or take it back.",
    help="Label what any ID means. KEY=VALUE is found by search --where and shown by trace; another value replaces it.",
    epilog="""Example:

\b
  headwater label audio/acme/2026-01-31/call.wav mood=angry --by ann""",
)
@click.argument("object_id", metavar="ID")
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]…")
@click.option("--remove", multiple=True, metavar="KEY", help="Take a label back.")
@click.option("--by", metavar="NAME", help="Who says it. Default: who calls.")
@click.option("--customer", metavar="NAME", help="Whose, where several customers have an event of that id.")
@with_session
def command(
    session: Session,
    object_id: str,
    pairs: tuple[str, ...],
    remove: tuple[str, ...],
    by: str | None,
    customer: str | None,
) -> None:
    if not pairs and not remove:
        raise InvalidRequest("Label it with what? Say KEY=VALUE, or --remove KEY.")
    with session.open() as lake:
        session.show(lake.label(object_id, pairs, remove=remove, by=by or caller(), customer=customer), draw)


def draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, text

    say(text(document["object"], "bold"))
    for label in document["labels"]:
        say(f"  {label['key']}={label['value']}", text(f"  {label['labelled_by']}, {label['labelled_at']}", "dim"))
    if not document["labels"]:
        say("  no labels")
