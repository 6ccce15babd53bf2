"""How a step and a model are named on the command line: the same for every command that takes them."""

import difflib
from typing import Any, Final

import click

MODEL_HELP: Final = "A model is named as `headwater models` shows it; ACTIVE is the active one."


class StepType(click.ParamType[str]):
    """A step whose model can be chosen."""

    name = "step"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from headwater.domain.steps import CHOICES

        if value in CHOICES:
            return str(value)
        near = difflib.get_close_matches(str(value), CHOICES, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        self.fail(f"{value!r} has no model to choose. These have: {', '.join(CHOICES)}.{hint}", param, ctx)


def shown_name(name: str, label: str) -> str:
    """What a person calls it, and what its rows call it where that says more."""
    return label if label.startswith(f"{name} ") else f"{name} ({label})"
