"""`headwater connect`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session
from headwater.errors import InvalidRequest


@click.command(
    short_help="How other programs read the tables.",
    help="Print what another program needs to read the lake's tables by itself: settings, packages and a few lines.",
)
@click.option("--spark", is_flag=True, help="For a Spark session of your own.")
@click.option("--pyiceberg", is_flag=True, help="For PyIceberg.")
@click.option("--duckdb", is_flag=True, help="For DuckDB, by PyIceberg.")
@click.option("--polars", is_flag=True, help="For Polars, by PyIceberg.")
@click.option("--daft", is_flag=True, help="For Daft, by PyIceberg.")
@click.option("--secrets", is_flag=True, help="With passwords and keys in it; else they are masked.")
@with_session
def command(session: Session, secrets: bool, **engines: bool) -> None:
    chosen = [name for name, wanted in engines.items() if wanted]
    if len(chosen) != 1:
        raise InvalidRequest(f"Name one program to connect: {', '.join(f'--{name}' for name in engines)}.")
    with session.open() as lake:
        recipe = lake.upkeep.connect(chosen[0], secrets=secrets)
    session.show(recipe.to_dict(), _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say

    say(f"# needs {', '.join(document['packages'])}")
    if document["secrets"]:
        say(f"# left out, see --secrets: {', '.join(document['secrets'])}")
    say(document["code"].rstrip())
