"""`headwater models`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session


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
    from headwater.cli.naming import shown_name
    from headwater.cli.output import money, say, table, text

    columns = ("step", "state", "model", "fingerprint", "rows", "seconds", "cost")
    rows = [
        (
            known["step"],
            text(known["state"], "bold" if known["state"] == "active" else ""),
            shown_name(known["name"], known["model"]),
            known["fingerprint"],
            f"{known['rows']:,}",
            f"{known['model_seconds']:,.1f}",
            money(known["cost"]),
        )
        for known in document["models"]
    ]
    table(columns, rows, numbers=columns[4:], whole=[name for name in columns if name != "model"])
    for known in document["models"]:
        if next_move := _next_move(known):
            say(next_move)
    for offer in document["better"]:
        say(f"{offer['name']} is better than {offer['instead_of']} for {offer['step']}: {_quoted(offer['quote'])}.")
        say(f"  Bring it in: {offer['replay']}")
    for sentence in document["fallbacks"]:
        say(sentence)


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
