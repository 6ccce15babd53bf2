"""`headwater down`"""

from pathlib import Path
from typing import Any

import click

from headwater.cli.commands.up import in_directory
from headwater.cli.session import Session, with_session


@click.command(short_help="Stop what `up` started.", help="Stop the stack that `headwater up` started.")
@in_directory
@click.option("--purge", is_flag=True, help="Delete its data too.")
@with_session
def command(session: Session, directory: Path, purge: bool) -> None:
    from headwater.errors import NotFound
    from headwater.stack.stack import Stack
    from headwater.stack.state import read_state

    stack = Stack(directory)
    if purge and not read_state(stack.directory).ports:
        raise NotFound(
            f"There is no stack in {stack.directory}; nothing was deleted. Name its place: headwater down --dir DIR"
        )
    stopped = stack.down(purge=purge)
    session.show({"directory": str(stack.directory), "stopped": stopped, "purged": purge}, _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say

    stopped = f"Stopped {', '.join(document['stopped'])}." if document["stopped"] else "Nothing was running."
    say(stopped + (f" {document['directory']} is deleted." if document["purged"] else ""))
