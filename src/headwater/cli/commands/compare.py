"""`headwater compare`"""

from typing import Any

import click

from headwater.cli.naming import MODEL_HELP, StepType
from headwater.cli.session import Session, with_session


@click.command(
    short_help="Two models of a step, side by side.",
    help="Two models of a step side by side: coverage, disagreement, cost, and a sample to look at. " + MODEL_HELP,
)
@click.argument("step", type=StepType())
@click.argument("one")
@click.argument("other")
@with_session
def command(session: Session, step: str, one: str, other: str) -> None:
    with session.open() as lake:
        found = lake.models.compare(step, one, other)
    if found["models"][0]["fingerprint"] == found["models"][1]["fingerprint"]:
        session.note("These are one and the same model. headwater models shows which there are.")
    session.show(found, _draw)


def _draw(found: dict[str, Any]) -> None:
    from headwater.cli.output import heading, money, one_line, say, table, text

    one, other = found["models"]
    facts = (
        ("fingerprint", lambda model: model["fingerprint"]),
        ("state", lambda model: model["state"]),
        ("objects covered", lambda model: f"{model['covered']:,} of {model['objects']:,}"),
        ("rows", lambda model: f"{model['rows']:,}"),
        ("model seconds", lambda model: f"{model['model_seconds']:,.1f}"),
        ("tokens", lambda model: f"{model['tokens']:,}"),
        ("cost", lambda model: money(model["cost"])),
        ("attempts", lambda model: f"{model['attempts']:,}"),
    )
    table(
        ("", one["model"], other["model"]),
        [(name, fact_of(one), fact_of(other)) for name, fact_of in facts],
        whole=("",),
    )
    say("")
    say(_disagreement(found["disagreement"], one["name"]))
    names = [model["name"] if one["name"] != other["name"] else model["fingerprint"] for model in (one, other)]
    width = max(map(len, names))
    if found["sample"]:
        heading("Where they differ most")
    for pair in found["sample"]:
        say(text(pair.get("object_id") or f"“{one_line(pair['query'], 90)}”", "dim"))
        for name, answer in zip(names, (pair["one"], pair["other"]), strict=True):
            shown = "; ".join(answer) if isinstance(answer, list) else answer
            say(text(f"  {name:<{width}}  ", "dim"), one_line(shown, 160) or "(nothing)")


def _disagreement(found: dict[str, Any], measure: str) -> str:
    if "overlap_at_10" in found:
        if found["overlap_at_10"] is None:
            return "Nothing to compare yet."
        return f"Of the ten nearest they share {found['overlap_at_10']:.0%}, over {found['queries']:,} queries."
    if not found["pairs"]:
        return "No object was done by both yet."
    if found["word_error"] is None:
        return f"Over {found['pairs']:,} objects, {measure} has no words to measure by; {found['equal']:,} are equal."
    return (
        f"Words that differ: {found['word_error']:.1%} of those of {measure}, over {found['pairs']:,} objects; "
        f"{found['equal']:,} are equal."
    )
