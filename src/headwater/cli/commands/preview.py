"""`headwater preview`"""

from pathlib import Path

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="A picture of a page, a frame or a picture.",
    help="Write a JPEG of what ID shows: a page of a PDF, a moment of a video, or a picture of any kind. It is drawn "
    "in a child process with the limits of derive.",
    epilog="""Example:

\b
  headwater preview documents/acme/2026-01-31/contract.pdf --page 3 -o page-3.jpg""",
)
@click.argument("object_id", metavar="ID")
@click.option("--page", type=click.IntRange(1), help="Of a PDF. Default: the first.")
@click.option("--at", "frame_ms", type=click.IntRange(0), metavar="MS", help="Of a video: the moment in milliseconds.")
@click.option("--width", type=click.IntRange(16, 3_000), default=1_200, show_default=True, help="At most, in points.")
@click.option("--customer", metavar="NAME", help="Whose, where several customers have an event of that id.")
@click.option("-o", "--output", metavar="FILE", required=True, type=click.Path(path_type=Path, dir_okay=False))
@with_session
def command(
    session: Session,
    object_id: str,
    page: int | None,
    frame_ms: int | None,
    width: int,
    customer: str | None,
    output: Path,
) -> None:
    with session.open() as lake:
        drawn = lake.preview(object_id, page=page, frame_ms=frame_ms, width=width, customer=customer)
    output.write_bytes(drawn)
    document = {"id": object_id, "file": str(output), "bytes": len(drawn)}
    session.show(document, lambda found: session.note(f"{found['bytes']:,} bytes written to {found['file']}"))
