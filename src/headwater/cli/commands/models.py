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
        session.show({"models": lake.models.list()}, _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, table, text

    columns = ("step", "state", "name", "model", "fingerprint", "rows", "behind", "model seconds", "cost")
    rows = [
        (
            known["step"],
            text(known["state"], "bold" if known["state"] == "active" else ""),
            known["name"],
            known["model"],
            known["fingerprint"],
            f"{known['rows']:,}",
            f"{known['behind']:,}",
            f"{known['model_seconds']:,.1f}",
            f"{known['cost']:,.4f}",
        )
        for known in document["models"]
    ]
    table(columns, rows, numbers=("rows", "behind", "model seconds", "cost"))
    if any(known["state"] == "building" for known in document["models"]):
        say("Half-way: headwater replay STEP --model NAME goes on where it was left.")
    if any(known["state"] == "beside" for known in document["models"]):
        say("A model beside the active one is kept up with what arrives until: headwater retire STEP NAME")
