"""The options by which commands that list or write objects choose them."""

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import click

from headwater.cli.session import Moment

_OPTIONS: Final = (
    click.option("--customer", metavar="NAME", help="Only theirs."),
    click.option("--modality", metavar="KIND", help="Only audio, image, video, document or chat."),
    click.option("--since", type=Moment(), metavar="TIME", help="Not before."),
    click.option("--until", type=Moment(), metavar="TIME", help="Only before."),
    click.option("--thread", metavar="NAME", help="Only of this conversation."),
    click.option("--where", multiple=True, metavar="KEY=VALUE", help="Only what is known so, by its meta or a label."),
)


def with_selection(command: Callable[..., Any]) -> Callable[..., Any]:
    """In this order in the help; the one that is applied last stands first."""
    return reduce(lambda made, option: option(made), reversed(_OPTIONS), command)
