"""`headwater demo`"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import click

from headwater.cli.session import Session, with_session

DEFAULT: Final = Path("demo-lake")
DEFAULT_STACK: Final = Path("demo-stack")
_KINDS: Final = {"chat": "chat line", "broken": "broken file"}


@click.command(
    short_help="See the whole flow work, on real media.",
    help="Run the whole flow on real media in a fresh lake (default ./demo-lake), and show what came of it.",
)
@click.option("--keep", is_flag=True, help="Go on with the demo's lake that is there, instead of making it anew.")
@click.option("--stack", is_flag=True, help="Run it on Kafka, S3, Postgres and a Spark cluster (default ./demo-stack).")
@with_session
def command(session: Session, keep: bool, stack: bool) -> None:
    from headwater.cli.commands.run import totals
    from headwater.cli.progress import Bars
    from headwater.demo import tour

    directory = session.named or (DEFAULT_STACK if stack else DEFAULT)
    servers = (lambda place: tour.start_stack(place, session.note)) if stack else None
    with tour.make_lake(directory, keep=keep, servers=servers) as lake:
        session.note(f"A lake in {directory}: calls, screenshots, a video, a PDF and chat of four customers.")
        items = tour.make_media(directory)
        with Bars({"put": len(items)}, lines=False) as bars:
            tour.send(lake, items, bars.advance)
        session.note("Starting Spark …")
        with Bars(totals(lake.pending())) as bars:
            lake.run(once=True, report=bars.advance)
        session.show(tour.look_around(lake, items).to_dict(), lambda found: _draw(found, directory))


def _draw(tour: dict[str, Any], directory: Path) -> None:
    from headwater.cli.output import heading, plural, say, table

    heading("What arrived")
    for customer, kinds in tour["arrived"].items():
        say(f"  {customer:<10}", ", ".join(plural(count, _KINDS.get(kind, kind)) for kind, count in kinds.items()))
    heading("What was derived")
    table(("  table", "rows"), [(f"  {name}", f"{count:,}") for name, count in tour["derived"].items()], ("rows",))
    _draw_heard(tour)
    _draw_read(tour)
    _draw_searches(tour["searches"])
    _draw_trace(tour["trace"])
    _draw_quarantine(tour["quarantine"])
    _draw_next(tour, directory)


def _draw_heard(tour: dict[str, Any]) -> None:
    from headwater.cli.output import heading, one_line, say, text

    heading("What the speech model heard")
    for line in tour["heard"]:
        sure = "" if line["confidence"] is None else f", confidence {line['confidence']:.2f}"
        say(f"  {line['object_id'].rpartition('/')[2]}", text(f"  {line['word_error']:.0%} word error{sure}", "yellow"))
        say(text("    said   ", "dim"), one_line(line["truth"]))
        say(text("    heard  ", "dim"), one_line(line["heard"]))
    if tour["heard"]:
        say(f"  Over all: {tour['word_error']:.1%} word error, by {tour['heard'][0]['model']}.")


def _draw_read(tour: dict[str, Any]) -> None:
    from headwater.cli.output import heading, one_line, say, text

    heading("What was read on the screenshots")
    for screen in tour["read"]:
        name = screen["object_id"].rpartition("/")[2]
        say(f"  {name}", text(f"  {screen['character_error']:.1%} character error", "yellow"))
        say(text("    read   ", "dim"), one_line(screen["read"]))
    if tour["read"]:
        say(
            f"  Over all: {tour['character_error']:.1%} character error, blanks counted, by {tour['read'][0]['model']}."
        )


def _draw_searches(searches: list[dict[str, Any]]) -> None:
    from headwater.cli.commands.search import draw
    from headwater.cli.output import heading, say

    for answer in searches:
        only = " ".join(f"--{name} {answer[name]}" for name in ("customer", "modality") if name in answer)
        heading(f'headwater search "{answer["query"]}" {only}'.rstrip())
        draw(answer)
        if answer["hits"] and not answer["shared"]:
            say("    Found by its meaning: no word of the question stands in it.")


def _draw_trace(trace: dict[str, Any] | None) -> None:
    from headwater.cli.commands.trace import draw
    from headwater.cli.output import heading

    if trace is not None:
        heading("Back from the first hit to its source")
        draw(trace)


def _draw_quarantine(quarantine: dict[str, Any]) -> None:
    from headwater.cli.commands.quarantine import draw
    from headwater.cli.output import heading

    heading("What could not be processed")
    draw(quarantine)


def _draw_next(tour: dict[str, Any], directory: Path) -> None:
    from headwater.cli.output import heading, say

    heading("Try next")
    tries = [
        'search "refund"',
        "show transcripts",
        'sql "select customer, count(*) as texts from embeddings group by customer"',
        'put --text "The router is broken again" --customer globex',
        "run --once",
        "status",
    ]
    if tour["trace"] and tour["trace"]["object"]:
        tries.insert(1, f"trace {tour['trace']['object']['path']}")
    for line in tries:
        say(f"  {_program()} --lake {directory} {line}")
    heading("Look at it")
    say(f"  {_program()} --lake {directory} serve --open")


def _program() -> str:
    """As it was called, where a shell would not find it by its name alone: what is printed can be pasted."""
    called = Path(sys.argv[0])
    found = shutil.which(called.name)
    if called.name != "headwater" or (found and Path(found).samefile(called)):
        return "headwater"
    return os.path.relpath(called)
