"""`headwater up`"""

from pathlib import Path
from typing import Any

import click

from headwater.cli.session import Session, with_session

# `down` means the same stack.
in_directory = click.option(
    "--dir",
    "directory",
    default="stack",
    show_default=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where its data are.",
)


@click.command(
    short_help="Start Kafka, S3, Postgres and Spark here.",
    help="Start a private production-like stack on this machine: Kafka, S3, Postgres, a Spark cluster. What runs is"
    " kept, what died is started again.",
)
@in_directory
@click.option("--only", metavar="PART,…", default="", help="Only these: kafka, s3, postgres, spark.")
@with_session
def command(session: Session, directory: Path, only: str) -> None:
    from headwater.stack.stack import Stack

    stack = Stack(directory)
    stack.up([name.strip() for name in only.split(",") if name.strip()], session.note)
    document = {"directory": str(stack.directory), "settings": str(stack.settings_file), "parts": stack.shown()}
    session.show(document, lambda shown: _draw(shown, directory))


def _draw(document: dict[str, Any], directory: Path) -> None:
    from headwater.cli.output import say, table

    rows = [(name, part["version"], part["url"], part["pid"] or "stopped") for name, part in document["parts"].items()]
    table(("part", "what", "where", "pid"), rows)
    say("")
    say(f"A lake on it, once: headwater init {directory}")
    say(f"Then: headwater --lake {directory} put FILE… --customer NAME, and headwater --lake {directory} run")
    say(f"Settings and keys for another lake: {document['settings']}")
    where = "" if directory == Path("stack") else f" --dir {directory}"
    say(f"Stop it: headwater down{where} (with --purge its data go too)")
