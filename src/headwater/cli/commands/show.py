"""`headwater show`"""

from typing import TYPE_CHECKING, Any, Final

import click

from headwater.cli.session import Session, as_of_option, with_session

if TYPE_CHECKING:
    from headwater.domain.ref import Ref

# What a person looks for, in this order; the rest is in --json.
_SHOWN: Final = (
    "object_id", "customer", "modality", "occurred_at", "reason", "detail", "text", "confidence", "language", "model",
    "content_type", "size", "duration_ms", "width", "height", "pages", "attempts", "log_partition", "log_offset",
    "extra",
)  # fmt: skip
_FIRST: Final = ("object_id", "text", "reason", "detail", "occurred_at", "customer", "model")


@click.command(
    short_help="The newest rows of a table.",
    help="The newest rows of TABLE, such as transcripts or silver.captions. Vectors are left out.",
)
@click.argument("name", metavar="TABLE")
@click.option("--limit", default=10, show_default=True, type=click.IntRange(min=1), help="How many rows.")
@as_of_option
@with_session
def command(session: Session, name: str, limit: int, as_of: "Ref | None") -> None:
    with session.open() as lake:
        session.show(lake.show(name, limit=limit, as_of=as_of), _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.fitted_table import Column, fitted_table
    from headwater.cli.output import plural, say

    columns = [name for name in _SHOWN if name in document["columns"]]
    rows = [{name: _cell(name, row[name]) for name in columns} for row in document["rows"]]
    kinds = {
        "object_id": Column(24, shows_end=True),
        "text": Column(30),
        "detail": Column(30),
        "occurred_at": Column(16),
    }
    left_out = fitted_table(columns, rows, _FIRST, kinds) if rows else []
    more = f" No room for: {', '.join(left_out)}." if left_out else ""
    say(f"{plural(len(rows), 'row')} of {document['table']}, newest first.{more} Whole: --json, or headwater sql.")
    print_snapshots(document)


def _cell(name: str, value: Any) -> str:
    from headwater.cli.output import one_line
    from headwater.domain.keys import shown_path

    text = one_line(short(value))
    match name:
        case "object_id":
            return shown_path(text)
        case "occurred_at":
            return text[:16].replace("T", " ")
    return text


def print_snapshots(document: dict[str, Any], *, stderr: bool = False) -> None:
    """Where a ref was given, which snapshots were read."""
    from headwater.cli.output import say

    for read in document.get("as_of", {}).get("snapshots", []):
        what = f"snapshot {read['snapshot_id']} of {read['committed_at']}" if read["snapshot_id"] else "empty then"
        say(f"As of {document['as_of']['ref']}: {read['table']}, {what}", stderr=stderr)


def short(value: Any) -> str:
    """A value for a narrow cell: a pointer is its path, a list its length."""
    match value:
        case None:
            return ""
        case {"path": path}:
            return str(path)
        case dict():
            return ", ".join(f"{name} {inner}" for name, inner in value.items() if inner is not None)
        case list():
            return f"[{len(value)}]"
        case float():
            return f"{value:.3g}"
        case _:
            return str(value)
