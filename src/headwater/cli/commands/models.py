"""`headwater models`"""

from typing import Any, Final

import click

from headwater.cli.session import Session, with_session

_WIDE: Final = 100  # from here on a model's name and fingerprint stand beside one another


@click.command(
    short_help="Which model does which step.",
    help="Which model is active for each step, what stands beside it, and what each has made and cost.",
)
@with_session
def command(session: Session) -> None:
    with session.open() as lake:
        better = [offer.to_dict() for offer in lake.models.better()]
        session.show({"models": lake.models.list(), "better": better, "fallbacks": lake.settings.fallbacks()}, _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import console, money, say, table, text

    narrow = console().width < _WIDE
    numbers = ("rows", "seconds", "cost")
    columns = ("step", "state", *numbers, "model") if narrow else ("step", "state", "model", "fingerprint", *numbers)
    rows = []
    for known in document["models"]:
        state = text(known["state"], "bold" if known["state"] == "active" else "")
        counts = (f"{known['rows']:,}", f"{known['model_seconds']:,.1f}", money(known["cost"]))
        which = _which(known, narrow=narrow)
        rows.append((known["step"], state, *counts, *which) if narrow else (known["step"], state, *which, *counts))
    table(columns, rows, numbers=numbers, whole=[name for name in columns if name != "model"])
    for known in document["models"]:
        if next_move := _next_move(known):
            say(next_move)
    for offer in document["better"]:
        say(f"{offer['name']} is better than {offer['instead_of']} for {offer['step']}: {_quoted(offer['quote'])}.")
        say(f"  Bring it in: {offer['replay']}")
    for sentence in document["fallbacks"]:
        say(sentence)


def _which(known: dict[str, Any], *, narrow: bool) -> tuple[str, ...]:
    """By name, fingerprint and label: in a narrow terminal one below the other."""
    from headwater.cli.naming import shown_name

    if not narrow:
        return shown_name(known["name"], known["model"]), known["fingerprint"]
    return (f"{known['name']}  {known['fingerprint']}\n{known['model']}",)


def _quoted(quote: dict[str, Any]) -> str:
    from headwater.cli.output import plural

    what = plural(quote["objects"], "text" if quote["step"] == "embed" else "object") + " to do"
    return what if quote["seconds"] is None else f"{what}, {quote['seconds']:,.1f} s at the old pace"


def _next_move(known: dict[str, Any]) -> str | None:
    """What can be done with a model that nobody sees."""
    step, name, which = known["step"], known["name"], known["fingerprint"]
    match known["state"]:
        case "building":
            return f"{name} is {known['behind']:,} behind. Go on: headwater replay {step} --model {name}"
        case "partial":
            return f"{name} has made some rows. Make them all: headwater replay {step} --model {name}"
        case "standby":
            return (
                f"{name} is kept up with what arrives. Show it: headwater activate {step} {which}"
                f"\n  Let it go: headwater retire {step} {which}"
            )
        case "retiring":
            return f"{name} is half removed. Finish: headwater retire {step} {which}"
    return None
