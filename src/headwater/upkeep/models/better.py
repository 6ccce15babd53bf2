"""Better models: what a new lake begins with, where this one's readers still see the default of an earlier Headwater.

It is an offer, with what taking it will cost. Nothing changes by itself; who has named a model is offered none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.domain.steps import CHOICES
from headwater.settings import BY_NAME
from headwater.upkeep.models.named import find_candidate
from headwater.upkeep.models.quote import Quote
from headwater.upkeep.models.replay import quote_replay
from headwater.upkeep.parts import Parts

# By step, what was the default before.
EARLIER: Final[Mapping[str, str]] = {"transcribe": "pocketsphinx", "caption": "rapidocr", "embed": "lexical"}


@dataclass(frozen=True, slots=True)
class Better:
    """`replay` is the command that makes its rows beside those that are there; `quote` is what that will take."""

    step: str
    name: str
    instead_of: str
    replay: str
    quote: Quote

    def to_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in ("step", "name", "instead_of", "replay")}
        return {**fields, "quote": self.quote.to_dict()}


def better_models(parts: Parts) -> list[Better]:
    """Of steps whose active model is an earlier default, until the new one is in the book; starts no JVM."""
    return list(_offers(parts))


def _offers(parts: Parts) -> Iterator[Better]:
    book = parts.book()
    for step, earlier in EARLIER.items():
        active, setting = book.active(step), CHOICES[step].setting
        name = str(BY_NAME[setting].default_here().value)
        if active is None or active.name != earlier or name == earlier or not parts.settings.is_default(setting):
            continue
        if book.get(step, find_candidate(parts, step, name).fingerprint) is None:
            replay = f"headwater replay {step} --model {name}"
            yield Better(step, name, active.label, replay, quote_replay(parts, step, name))
