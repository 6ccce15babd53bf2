"""`headwater put`"""

import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from headwater.cli.session import Moment, Session, with_session
from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    from headwater.flow.land import Landed
    from headwater.lake import Lake

STDIN: Final = "-"
_SHOWN_MAX: Final = 50  # a person reads failures, not ten thousand successes


@click.command(
    short_help="Store files or text.",
    help="Store files, directories or globs ('-' for lines of text on stdin), or --text, and announce them.",
)
@click.argument("sources", nargs=-1, metavar="[FILE|DIR|GLOB]…")
@click.option("--text", "texts", multiple=True, help="A chat message instead of files.")
@click.option("--customer", required=True, metavar="NAME", help="Whose it is.")
@click.option("--id", "event_id", metavar="ID", help="The event's id: the same id twice is one event.")
@click.option("--at", type=Moment(), metavar="TIME", help="When it happened. Default: the file's time; now for text.")
@with_session
def command(session: Session, sources: tuple[str, ...], texts: tuple[str, ...], **about: Any) -> None:
    from headwater.cli.progress import Bars

    results = []
    with session.open() as lake, Bars({"put": None}, lines=False) as bars:
        for landed in _land(lake, sources, texts, **about):
            results.append(landed)
            bars.advance("put", 1)
    session.show(_document(results), _draw)
    if failed := [landed.error for landed in results if landed.error]:
        click.get_current_context().exit(failed[0].exit_code)


def _land(
    lake: "Lake",
    sources: tuple[str, ...],
    texts: tuple[str, ...],
    customer: str,
    event_id: str | None,
    at: datetime | None,
) -> "Iterator[Landed]":
    if not sources and not texts:
        raise InvalidRequest("Nothing to put: name files, directories or globs, or give --text.")
    lines = [line.rstrip("\n") for line in sys.stdin if line.strip()] if STDIN in sources else []
    files = [source for source in sources if source != STDIN]
    if event_id and len(files) + len(texts) + len(lines) > 1:
        raise InvalidRequest("--id names one thing, but several were given. Put them one by one, or leave --id out.")
    if files:
        yield from lake.put(*files, customer=customer, id=event_id, at=at)
    for text in (*texts, *lines):
        yield lake.put_text(text, customer=customer, id=event_id, at=at)


def _document(results: "list[Landed]") -> dict[str, Any]:
    counts = {"stored": 0, "already there": 0, "failed": 0}
    for landed in results:
        counts[landed.status] += 1
    summary = {name.replace(" ", "_"): count for name, count in counts.items()}
    return {"results": [_result(landed) for landed in results], "summary": summary}


def _result(landed: "Landed") -> dict[str, Any]:
    event, error = landed.event, landed.error
    return {
        "source": landed.source,
        "status": landed.status.replace(" ", "_"),
        "id": event.event_id if event else None,
        "path": event.pointer.path if event else None,
        "size": event.pointer.size if event else None,
        "error": {"kind": error.kind, "message": str(error), "retryable": error.retryable} if error else None,
    }


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say, size, text

    results, summary = document["results"], document["summary"]
    good = [result for result in results if not result["error"]]
    for result in good[:_SHOWN_MAX]:
        say(text(f"{result['status'].replace('_', ' '):<13}", "green"), f"  {result['path']}  {size(result['size'])}")
    if len(good) > _SHOWN_MAX:
        say(f"… and {len(good) - _SHOWN_MAX:,} more")
    for result in results:
        if result["error"]:
            say(text(f"{'failed':<13}", "red"), f"  {result['source']}: {result['error']['message']}")
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in summary.items() if count)
    say(f"{plural(len(results), 'item')}: {counts or 'nothing matched'}")
