"""`headwater replay`"""

import sys
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.naming import StepType
from headwater.cli.session import Session, with_session

if TYPE_CHECKING:
    from headwater.facets.models import Budget

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class BudgetType(click.ParamType["Budget"]):
    """`2.50` is money, in the currency of the model's price; `90s`, `30m` and `2h` are time."""

    name = "budget"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Budget":
        from headwater.facets.models import Budget

        if isinstance(value, Budget):
            return value
        number, unit = (value[:-1], value[-1]) if value[-1:] in _UNITS else (value, "")
        try:
            amount = float(number)
        except ValueError:
            amount = -1.0
        if not 0 <= amount < float("inf"):
            self.fail(f"{value!r} is neither money, such as 2.50, nor time, such as 90s, 30m or 2h.", param, ctx)
        return Budget(seconds=amount * _UNITS[unit]) if unit else Budget(money=amount)


@click.command(
    short_help="Derive a step again by another model.",
    help="Derive a step, such as transcribe, again by another model, beside what is there. It tells "
    "first what that will take; stopped, the same command goes on where it was left.",
)
@click.argument("step", type=StepType())
@click.option("--model", metavar="NAME", required=True, help="A section [model.NAME], a kind, or package.module:Class.")
@click.option("--budget", type=BudgetType(), metavar="AMOUNT", help="Stop after 2.50 (money) or 30m (time); resumes.")
@click.option("--dry-run", is_flag=True, help="Print the quote and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before a replay that costs money.")
@with_session
def command(session: Session, step: str, model: str, budget: "Budget | None", dry_run: bool, yes: bool) -> None:
    from headwater.cli.progress import Bars, stoppable
    from headwater.facets.models import Budget

    with session.open() as lake:
        quote = lake.models.quote(step, model).to_dict()
        if dry_run:
            session.show({"quote": quote}, lambda document: _draw_quote(document["quote"]))
            return
        if not session.as_json:
            _draw_quote(quote)
        if quote["cost"] and budget is None and not yes and not _confirmed(quote["cost"]):
            session.note("Nothing was done.")
            click.get_current_context().exit(130)
        active = lake.models.book().active(step)
        if quote["objects"]:
            session.note("Starting Spark. Ctrl-C stops it; nothing is lost.")
        with stoppable() as stop, Bars({"replay": quote["objects"]} if quote["objects"] else {}) as bars:
            replayed = lake.models.replay(step, model, budget=budget or Budget(), report=bars.advance, stop=stop)
    seen = active is not None and active.fingerprint == quote["fingerprint"]
    session.show(replayed.to_dict(), lambda document: _draw_done(document, budget or Budget(), seen))
    if stop.is_set():
        click.get_current_context().exit(130)


def _confirmed(cost: float) -> bool:
    from headwater.cli.output import money
    from headwater.errors import InvalidRequest

    if not sys.stdin.isatty():
        raise InvalidRequest(f"It costs about {money(cost)}, and nobody is there to ask. Add --yes, or a --budget.")
    return click.confirm(f"Spend about {money(cost)}?", err=True)


def _draw_quote(quote: dict[str, Any]) -> None:
    from headwater.cli.output import money, plural, say, table
    from headwater.domain.quantities import size

    what = "text" if quote["step"] == "embed" else "object"
    say(f"{quote['step']} by {quote['model']} ({quote['fingerprint']}): {plural(quote['objects'], what)} to do.")
    if not quote["objects"]:
        return
    reads = ", ".join(f"{count:,} from {tier}" for tier, count in quote["reads"].items()) or "none"
    rows = [
        ("bytes to read", size(quote["bytes"])),
        ("reads by storage class", reads),
        ("answers remembered", f"{quote['remembered']:,}"),
        ("model calls", f"{quote['calls']:,}"),
        ("model seconds", _seconds(quote["model_seconds"], quote["pace_of"])),
        ("money", money(quote["cost"])),
        ("rows", f"{quote['rows']:,}"),
        ("vectors", f"{quote['vectors']:,}"),
        ("time", _seconds(quote["seconds"], None)),
    ]
    table(("", "quoted"), rows)


def _seconds(seconds: float | None, pace_of: str | None) -> str:
    if seconds is None:
        return "unknown: no pace to tell it by"
    return f"{seconds:,.1f} s" + (f" at the pace of {pace_of}" if pace_of else "")


def _draw_done(document: dict[str, Any], budget: "Budget", seen: bool) -> None:
    from headwater.cli.output import money, say, table

    quote, actual = document["quote"], document["actual"]
    if not quote["objects"] and document["finished"]:
        shown = f"Let it be seen: headwater activate {quote['step']} {quote['fingerprint']}"
        say(f"Nothing to do: it is complete{' and active.' if seen else '. ' + shown}")
        return
    pairs = (
        ("objects", _count(quote["objects"]), _count(actual["objects"])),
        ("calls", _count(quote["calls"]), _count(actual.get("calls", 0))),
        ("remembered", _count(quote["remembered"]), _count(actual.get("remembered", 0))),
        ("failed", "0", _count(actual.get("faults", 0))),
        ("tokens", "–", _count(actual.get("tokens", 0))),
        ("model seconds", _span(quote["model_seconds"]), _span(actual.get("model_seconds", 0.0))),
        ("money", money(quote["cost"]), money(actual.get("cost", 0.0))),
        ("seconds", _span(quote["seconds"]), _span(actual["seconds"])),
    )
    say("")
    table(("", "quoted", "actual"), pairs, numbers=("quoted", "actual"))
    if actual.get("faults"):
        say(f"{actual['faults']:,} could not be done. Why, and the way out: headwater quarantine")
    _draw_next(document, budget)


def _draw_next(document: dict[str, Any], budget: "Budget") -> None:
    from headwater.cli.output import say

    step, model = document["quote"]["step"], document["quote"]["fingerprint"]
    if document["finished"]:
        ends = "All were tried" if document["actual"].get("faults") else "It is complete"
        say(f"{ends}. Look: headwater compare {step} ACTIVE {model}")
        say(f"Let it be seen: headwater activate {step} {model}")
        return
    bounded = budget.money is not None or budget.seconds is not None
    if bounded and not document["actual"]["objects"]:
        say("The budget does not pay for the next object; nothing was called. A larger one goes on from here.")
    else:
        why = "as the budget says" if bounded else "before the end"
        say(f"It stopped {why}; the same command goes on where it was left.")


def _count(value: int) -> str:
    return f"{value:,}"


def _span(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:,.1f}"
