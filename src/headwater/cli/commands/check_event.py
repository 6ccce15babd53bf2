"""`headwater check-event`"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headwater.cli.session import Session, with_session
from headwater.errors import DataFault, NotFound

if TYPE_CHECKING:
    from headwater.domain.event_problems import Problem

STDIN: Final = "-"


@click.command(
    short_help="Would a lake take these events?",
    help="Check events, one a line, in FILE or on stdin (-): every problem is told by its field. Needs no lake.",
)
@click.argument("file", metavar="FILE|-")
@click.option("--against-store", is_flag=True, help="Look also whether the lake's raw store has the bytes they tell.")
@click.option("--producer", metavar="NAME", help="May this one of the lake's [producers] send them? * is nobody known.")
@with_session
def command(session: Session, file: str, against_store: bool, producer: str | None) -> None:
    with ExitStack() as stack:
        lake = stack.enter_context(session.open()) if against_store or producer else None
        check = partial(lake.upkeep.check_event, producer=producer, in_store=against_store) if lake else None
        document = _check(_lines(file), check)
    session.show(document, _draw)
    if document["faulty"]:
        click.get_current_context().exit(DataFault.exit_code)


def _check(lines: Iterator[bytes], by_lake: "Callable[[bytes], list[Problem]] | None") -> dict[str, Any]:
    from headwater.domain.check_event import check_event

    check = by_lake or check_event
    checked, faulty = 0, []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        checked += 1
        if problems := check(line):
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
