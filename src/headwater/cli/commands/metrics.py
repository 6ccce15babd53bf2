"""`headwater metrics`"""

from pathlib import Path

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="The lake's numbers for a monitor.",
    help="The lake's numbers as OpenMetrics text, from metadata and the reasons of quarantine; starts no Spark.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to FILE, replaced as a whole: for Prometheus's textfile collector.",
)
@with_session
def command(session: Session, output: Path | None) -> None:
    with session.open() as lake:
        text = lake.upkeep.metrics()
    if output is None:
        session.show({"metrics": text}, lambda document: click.echo(document["metrics"], nl=False))
        return
    _replace(output, text)
    session.show({"file": str(output), "bytes": len(text.encode())}, lambda _: None)


def _replace(file: Path, text: str) -> None:
    """A collector that looks in between sees the whole old file or the whole new one."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)
