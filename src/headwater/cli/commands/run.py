"""`headwater run`"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.session import Session, with_session

if TYPE_CHECKING:
    from headwater.flow.drive.pending import Pending


@click.command(
    short_help="Bring what arrived through the stages.",
    help="Bring what has arrived through the stages: until stopped, or --once and exit.",
)
@click.option("--once", is_flag=True, help="Drain what is there, then exit; with nothing pending no Spark is started.")
@click.option("--master", metavar="URL", help="Spark's master, such as local[4]. Default: the setting spark.master.")
@click.option("--metrics-port", metavar="N", type=click.IntRange(0, 65535), help="Serve /metrics on loopback, port N.")
@click.option("--verbose", is_flag=True, help="Show the lines of logs/headwater.jsonl instead of bars.")
@with_session
def command(session: Session, once: bool, master: str | None, metrics_port: int | None, verbose: bool) -> None:
    from headwater.cli.progress import Bars, stoppable

    options = {"spark.master": master} if master else {}
    with stoppable() as stop, session.open(**options) as lake, _metrics(session, metrics_port):
        pending = lake.pending()
        told = "Starting Spark …" if once else "Starting Spark. Ctrl-C stops it; nothing is lost."
        start = partial(session.note, told)
        if verbose:
            ran = lake.run(once=once, stop=stop, listen=session.note, on_start=start)
        else:
            with Bars(totals(pending) if once else {}) as bars:
                ran = lake.run(once=once, report=bars.advance, stop=stop, on_start=start)
        interrupted = once and stop.is_set()
        session.show(asdict(ran), partial(draw, interrupted=interrupted))
        if interrupted:
            click.get_current_context().exit(130)


@contextmanager
def _metrics(session: Session, port: int | None) -> Iterator[None]:
    if port is None:
        yield
        return
    with session.open() as lake, lake.upkeep.serve_metrics(port) as chosen:
        session.note(f"Metrics: http://127.0.0.1:{chosen}/metrics")
        yield


def totals(pending: "Pending") -> dict[str, int | None]:
    """How far each bar has to go, as far as that is known before texts are made."""
    known = {"bronze": pending.bronze, "derive": pending.bronze + pending.derive}
    return {name: count for name, count in known.items() if count} | {"embed": None, "index": None}


def draw(ran: dict[str, Any], *, interrupted: bool) -> None:
    from headwater.cli.output import plural, say

    if not ran["started"]:
        say("Nothing pending.")
        return
    counts = ", ".join(f"{stage} {count:,}" for stage, count in ran["done"].items() if count and stage != "quarantine")
    aside = ran["done"].get("quarantine")
    if interrupted:
        say(f"Stopped before it was done: {counts or 'nothing new'}. Go on: headwater run --once")
    elif counts or not aside:
        say(f"Done: {counts or 'nothing new'}.")
    if aside:
        rows = plural(aside, "row")
        say(f"Set aside by this run: {rows}. All that waits, why, and the way out: headwater quarantine")
    if ran["done"].get("lost"):
        say("The log lost events before they were read. What was stored comes back by: headwater rescan")
    if paid := [model for model in ran["models"].values() if model["cost"] > 0]:
        say(f"Paid: {'; '.join(_bill(model) for model in paid)}.")


def _bill(model: dict[str, Any]) -> str:
    from headwater.cli.output import money, plural

    remembered = f", {model['remembered']:,} remembered" if model["remembered"] else ""
    return f"{model['model']} {money(model['cost'])} for {plural(model['calls'], 'call')}{remembered}"
