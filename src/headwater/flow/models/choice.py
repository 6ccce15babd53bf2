"""Which model each step begins with: the settings' choice enters the book once, and from then on the book decides.

A setting that changes later changes nothing by itself: rows of two models would stand side by side. It is a wish, and
the way to it is a replay and a flip.
"""

from collections.abc import Collection
from datetime import datetime

from headwater.clock import to_text
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.steps import CHOICES, EMBED
from headwater.errors import Conflict, InvalidRequest
from headwater.flow.models.loaded import Models
from headwater.flow.models.port import ModelCard


def settled(book: ModelBook, models: Models, empty: Collection[str], now: datetime) -> ModelBook:
    """The book with a model for every step. `empty` are the steps without a row: there the setting still decides."""
    for name, step in CHOICES.items():
        active = book.active(name)
        if step.optional and (not models.name_of(step.setting) or (active is None and name not in empty)):
            continue
        card = models.card(step.setting)
        if active is not None and (name not in empty or active.fingerprint == card.fingerprint):
            continue
        if active is not None:
            book = book.without(active)
        book = book.with_model(known_model(models, name, models.name_of(step.setting), State.ACTIVE, now))
    return book


def known_model(
    models: Models, step: str, name: str, state: State, now: datetime, *, replayed: bool = False
) -> KnownModel:
    """A model by its name, checked to be one for this step."""
    if step not in CHOICES:
        raise InvalidRequest(f"{step} has no model to choose. These have: {', '.join(CHOICES)}.")
    known, card = CHOICES[step], card_of(models, step, name)
    if (card.accepts, card.produces) != (known.accepts, known.produces):
        raise InvalidRequest(
            f"{card.label} makes {card.produces} of {card.accepts}; "
            f"{step} needs a model that makes {known.produces} of {known.accepts}."
        )
    return KnownModel(step, name, card.label, card.fingerprint, state, to_text(now), replayed)


def card_of(models: Models, step: str, name: str) -> ModelCard:
    """Of a model by its name, as one that does this step. Loads nothing."""
    setting = CHOICES[step].setting
    return models.chosen(setting, name).card(setting)


def step_of(models: Models, name: str) -> str:
    """The step that a model is for."""
    card = card_of(models, EMBED.name, name)
    for step in CHOICES.values():
        if (step.accepts, step.produces) == (card.accepts, card.produces):
            return step.name
    raise InvalidRequest(f"{card.label} makes {card.produces} of {card.accepts}; no step here needs that.")


def require_same(known: KnownModel, card: ModelCard) -> None:
    """Raises Conflict where a model's name now stands for another model: its rows must not be mixed with the old."""
    if known.fingerprint != card.fingerprint:
        raise Conflict(
            f"{known.step} works with {known.name} {known.fingerprint}, but that name now stands for {card.label} "
            f"{card.fingerprint}: its version, options or weights have changed. {_way_out(known)}"
        )


def _way_out(known: KnownModel) -> str:
    if known.state is not State.ACTIVE:
        return f"Take the change back, or let it go: headwater retire {known.step} {known.fingerprint}"
    return f"Take the change back, or move over to it: headwater replay {known.step} --model {known.name}"


def unheeded(book: ModelBook, models: Models) -> list[str]:
    """A sentence for each setting that names another model than the active one."""
    wishes = ((step, models.name_of(step.setting), book.active(step.name)) for step in CHOICES.values())
    return [
        f"{step.setting} names {name}, but {active.name if active else 'no model'} is active. "
        f"To change over: headwater replay {step.name} --model {name}, then headwater activate."
        for step, name, active in wishes
        if name and name != (active.name if active else None)
    ]
