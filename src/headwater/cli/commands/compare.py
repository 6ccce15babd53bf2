"""`headwater compare`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="Two models of a step, side by side.",
    help="Two models of a step side by side: coverage, disagreement, cost, and a sample to look at.",
)
@click.argument("step")
@click.argument("one")
@click.argument("other")
@with_session
def command(session: Session, step: str, one: str, other: str) -> None:
    """A model is named as `headwater models` names it; ACTIVE is the active one."""
    with session.open() as lake:
        session.show(lake.models.compare(step, one, other), _draw)


def _draw(found: dict[str, Any]) -> None:
    from headwater.cli.output import heading, one_line, say, table, text

    columns = ("model", "state", "covered", "rows", "model seconds", "tokens", "cost", "attempts")
    rows = [
        (
            f"{model['model']} ({model['fingerprint']})",
            model["state"],
            f"{model['covered']:,} of {model['objects']:,}",
            f"{model['rows']:,}",
            f"{model['model_seconds']:,.1f}",
            f"{model['tokens']:,}",
            f"{model['cost']:,.4f}",
            f"{model['attempts']:,}",
        )
        for model in found["models"]
    ]
    table(columns, rows, numbers=columns[2:])
    say(_disagreement(found["disagreement"]))
    names = [model["model"] for model in found["models"]]
    if found["sample"]:
        heading("Where they differ most")
    for pair in found["sample"]:
        say(text(pair.get("object_id") or f"“{one_line(pair['query'], 100)}”", "dim"))
        for name, said in zip(names, (pair["one"], pair["other"]), strict=True):
            shown = "; ".join(said) if isinstance(said, list) else said
            say(f"  {name}: ", one_line(shown, 160) or "(nothing)")


def _disagreement(told: dict[str, Any]) -> str:
    if "overlap_at_10" in told:
        if told["overlap_at_10"] is None:
            return "Nothing to compare yet."
        return f"Of the ten nearest they share {told['overlap_at_10']:.0%}, over {told['queries']:,} queries."
    if not told["pairs"]:
        return "No object was done by both yet."
    error = f"{told['word_error']:.1%}" if told["word_error"] is not None else "none"
    return f"Words that differ: {error}, over {told['pairs']:,} objects; {told['equal']:,} are equal."
