"""`headwater replay`"""

import sys
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.session import Session, with_session

if TYPE_CHECKING:
    from headwater.models import Budget

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class BudgetType(click.ParamType["Budget"]):
    """`2.50` is money, in the currency of the model's price; `90s`, `30m` and `2h` are time."""

    name = "budget"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Budget":
        from headwater.models import Budget

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
    help="Derive a step again by another model, beside what is there. It tells first what that will take.",
)
@click.argument("step")
@click.option("--model", metavar="NAME", required=True, help="A model's name, or package.module:Class.")
@click.option("--budget", type=BudgetType(), metavar="AMOUNT", help="Stop after 2.50 (money) or 30m (time); resumes.")
@click.option("--dry-run", is_flag=True, help="Print the quote and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before a replay that costs money.")
@with_session
def command(session: Session, step: str, model: str, budget: "Budget | None", dry_run: bool, yes: bool) -> None:
    from headwater.cli.progress import Bars, stoppable
    from headwater.models import Budget

    with stoppable() as stop, session.open() as lake:
        quote = lake.models.quote(step, model).to_dict()
        if dry_run:
            session.show({"quote": quote}, lambda document: _draw_quote(document["quote"]))
            return
        if not session.as_json:
            _draw_quote(quote)
        if quote["cost"] and budget is None and not yes:
            _confirm(quote["cost"])
        with Bars({"replay": quote["objects"]}) as bars:
            replayed = lake.models.replay(step, model, budget=budget or Budget(), report=bars.advance, stop=stop)
    session.show(replayed.to_dict(), _draw_done)
    if stop.is_set():
        click.get_current_context().exit(130)


def _confirm(cost: float) -> None:
    from headwater.errors import InvalidRequest

    if not sys.stdin.isatty():
        raise InvalidRequest(f"It costs about {cost:,.2f}, and nobody is there to ask. Add --yes, or a --budget.")
    click.confirm(f"Spend about {cost:,.2f}?", abort=True, err=True)


def _draw_quote(quote: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say, size, table

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
        ("money", f"{quote['cost']:,.4f}"),
        ("rows", f"{quote['rows']:,}"),
        ("vectors", f"{quote['vectors']:,}"),
        ("time", _seconds(quote["seconds"], None)),
    ]
    table(("", "quoted"), rows, numbers=("quoted",))


def _seconds(seconds: float | None, pace_of: str | None) -> str:
    if seconds is None:
        return "unknown: nobody has done this step yet"
    return f"{seconds:,.1f} s" + (f" at the pace of {pace_of}" if pace_of else "")


def _draw_done(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, table

    quote, actual = document["quote"], document["actual"]
    if not quote["objects"]:
        say("Nothing to do: it has done them all.")
        return
    pairs = (
        ("objects", quote["objects"], actual["objects"]),
        ("calls", quote["calls"], actual.get("calls", 0)),
        ("remembered", quote["remembered"], actual.get("remembered", 0)),
        ("failed", 0, actual.get("faults", 0)),
        ("model seconds", quote["model_seconds"], actual.get("model_seconds", 0.0)),
        ("tokens", None, actual.get("tokens", 0)),
        ("money", quote["cost"], actual.get("cost", 0.0)),
        ("seconds", quote["seconds"], actual["seconds"]),
    )
    table(("", "quoted", "actual"), [(name, _told(one), _told(two)) for name, one, two in pairs], ("quoted", "actual"))
    if document["finished"]:
        model = quote["fingerprint"]
        say(f"It is complete. Look: headwater compare {quote['step']} ACTIVE {model}")
        say(f"Let it be seen: headwater activate {quote['step']} {model}")
    else:
        say("It stopped before the end; the same command goes on where it was left.")


def _told(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}".rstrip("0").rstrip(".")
