"""`headwater get`"""

import os
import sys
from pathlib import Path

import click

from headwater.cli.session import Session, with_session
from headwater.errors import InvalidRequest


@click.command(
    short_help="The raw bytes behind an id.",
    help="Write the raw bytes behind an ID or a path to stdout or a file, verified against their checksum.",
)
@click.argument("object_id", metavar="ID")
@click.option("--customer", metavar="NAME", help="Whose, where several customers have an event of that id.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write it here.")
@with_session
def command(session: Session, object_id: str, customer: str | None, output: Path | None) -> None:
    if output is None and session.as_json:
        raise InvalidRequest("Raw bytes are not JSON. Name a file for them with -o FILE.")
    if output is None and sys.stdout.isatty():
        raise InvalidRequest("Raw bytes would garble the terminal. Name a file with -o FILE, or pipe them on.")
    with session.open() as lake:
        chunks = lake.get(object_id, customer=customer)
        if output is None:
            for chunk in chunks:
                sys.stdout.buffer.write(chunk)
            return
        # Renamed at the end: bytes that fail their checksum never stand under the name that was asked for.
        partial = output.with_name(f".{output.name}.{os.getpid()}.part")
        try:
            with partial.open("wb") as file:
                count = sum(file.write(chunk) for chunk in chunks)
            partial.replace(output)
        finally:
            partial.unlink(missing_ok=True)
    document = {"id": object_id, "file": str(output), "bytes": count}
    session.show(document, lambda found: session.note(f"{found['bytes']:,} bytes written to {found['file']}"))
