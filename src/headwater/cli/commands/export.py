"""`headwater export`"""

from pathlib import Path
from typing import Any

import click

from headwater.cli.selection import with_selection
from headwater.cli.session import Session, with_session
from headwater.errors import DataFault


@click.command(
    short_help="Objects and what was made of them, as files.",
    help="Write raw bytes, rows and a manifest of a selection to a directory: headwater export acme --customer acme",
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@with_selection
@click.option("--format", "form", type=click.Choice(["parquet", "jsonl"]), default="parquet", show_default=True)
@click.option("--vectors", is_flag=True, help="The embeddings too.")
@with_session
def command(session: Session, directory: Path, **chosen: Any) -> None:
    with session.open() as lake:
        exported = lake.export(directory, **chosen)
    session.show(exported.to_dict(), draw)
    if exported.missing:
        click.get_current_context().exit(DataFault.exit_code)


def draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say, text
    from headwater.domain.quantities import size

    for found in document["missing"]:
        say(text(f"{'missing':<13}", "red"), f"  {found['path']}: {found['message']}")
    rows = plural(sum(document["rows"].values()), "row")
    what = f"{plural(document['objects'], 'object')} with {size(document['bytes'])} and {rows}"
    say(f"{what} in {document['directory']}" + ("" if document["changed"] else ", as before"))
