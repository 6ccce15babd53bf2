"""`headwater check-event`"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headwater.cli.session import Session, with_session
from headwater.errors import DataFault, NotFound

if TYPE_CHECKING:
    from headwater.lake import Lake

STDIN: Final = "-"


@click.command(
    short_help="Would a lake take these events?",
    help="Check events, one a line, in FILE or on stdin (-): every problem is told by its field. Needs no lake.",
)
@click.argument("file", metavar="FILE|-")
@click.option("--against-store", is_flag=True, help="Look also whether the lake's raw store has the bytes they tell.")
@with_session
def command(session: Session, file: str, against_store: bool) -> None:
    with ExitStack() as stack:
        lake = stack.enter_context(session.open()) if against_store else None
        document = _check(_lines(file), lake)
    session.show(document, _draw)
    if document["faulty"]:
        click.get_current_context().exit(DataFault.exit_code)


def _check(lines: Iterator[bytes], lake: "Lake | None") -> dict[str, Any]:
    from headwater.domain.check_event import check_event

    checked, faulty = 0, []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        checked += 1
        if problems := lake.upkeep.check_event(line) if lake else check_event(line):
            faulty.append({"line": number, "problems": [problem.to_dict() for problem in problems]})
    return {"checked": checked, "sound": checked - len(faulty), "faulty": faulty}


def _lines(file: str) -> Iterator[bytes]:
    if file == STDIN:
        yield from (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
        return
    try:
        with Path(file).open("rb") as stream:
            yield from (line.rstrip(b"\r\n") for line in stream)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotFound(f"There is no file {file}. Name one with an event a line, or - for stdin.") from error


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say, text

    for found in document["faulty"]:
        for problem in found["problems"]:
            say(text(f"line {found['line']}", "red"), f"  {problem['field']}: {problem['says']}")
    say(f"{plural(document['checked'], 'event')}: {document['sound']:,} sound, {len(document['faulty']):,} faulty")
