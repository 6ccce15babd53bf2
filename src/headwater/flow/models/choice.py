"""Which model each step begins with: the settings' choice enters the book once, and from then on the book decides.

A setting that changes later changes nothing by itself: rows of two models would stand side by side. It is a wish, and
the way to it is a replay and a flip. A default that changes with Headwater is not even a wish: a lake that has rows
goes on with the models that its book has.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from headwater.clock import to_text
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.steps import CHOICES, EMBED, EXTRACT
from headwater.errors import Conflict, HeadwaterError, InvalidRequest
from headwater.flow.models.loaded import Models, models_of
from headwater.flow.models.own_code import code_digest, directory_of
from headwater.flow.models.port import ModelCard
from headwater.flow.models.registry import CODE, DIRECTORY, KIND, find_place, load_model, own_kind
from headwater.setting import DEFAULT, Chosen, Value
from headwater.settings import Settings

# What a default of a model that only helps another one was before; the book has no line for such a model.
_EARLIER: Final[Mapping[str, str]] = {EXTRACT.helper_setting: "rapidocr"}


def settled(
    book: ModelBook, models: Models, empty: Collection[str], now: datetime, wished: Collection[str] = CHOICES
) -> ModelBook:
    """The book with a model for every step. `empty` are the steps without a row: there the setting still decides, and
    of steps that are not `wished` only how the active model's name is to be taken."""
    for name, step in CHOICES.items():
        active = book.active(name)
        if step.optional and (not models.name_of(step.setting) or (active is None and name not in empty)):
            continue
        if name in wished:
            models.card(step.setting)  # refused where there is no such model
        if active is not None and name not in empty:
            continue
        wish = models.name_of(step.setting) if active is None or name in wished else active.name
        known = known_model(models, name, wish, State.ACTIVE, now)
        if active is not None and active.fingerprint == known.fingerprint:
            continue
        book = (book.without(active) if active is not None else book).with_model(known)
    return book


def fitting(settings: Settings, book: ModelBook) -> Settings:
    """The settings of a lake that has rows of a model with the earlier default of its helper: that one stays, where
    nobody has named another. Else a new default would make it another model, which is refused."""
    for helper, name in _EARLIER.items():
        if settings.is_default(helper):
            earlier = replace(settings, chosen={**settings.chosen, helper: Chosen(name, DEFAULT)})
            helped = (step.name for step in CHOICES.values() if step.helper_setting == helper)
            kept = (known for step in helped for known in book.kept(step))
            if any(_is_made_by(models_of(earlier), known) for known in kept):
                settings = earlier
    return with_own_models(settings, book.models)


def with_own_models(settings: Settings, known: Iterable[KnownModel]) -> Settings:
    """With what workers and their children must be told of models of one's own: where their modules lie, and what
    counts as their code. A model whose rows are from before code counted stays the one that it is, until its code is
    seen to change."""
    known = tuple(known)
    names = {*(model.name for model in known), *(settings.text(step.setting) for step in CHOICES.values())}
    sections = {name: dict(options) for name, options in settings.models.items()}
    for name in names:
        if not (place := own_kind(name, settings.models)):
            continue
        try:
            find_place(place)
            bare = load_model(name, {**sections, name: {KIND: place, **sections.get(name, {}), CODE: ""}}).card
        except HeadwaterError:
            continue  # which is told where it is asked for
        code = code_digest(place)
        if any((m.name, m.fingerprint) == (name, bare.fingerprint) and m.code in {"", code} for m in known):
            code = ""
        told: dict[str, Value] = {KIND: place, DIRECTORY: directory_of(place), CODE: code}
        sections[name] = {**told, **sections.get(name, {}), DIRECTORY: told[DIRECTORY], CODE: code}
    return replace(settings, models=sections)


def codes_seen(settings: Settings, book: ModelBook) -> dict[str, str]:
    """Of models of one's own whose fingerprints do not tell their code, what that is now, by fingerprint."""
    sections = with_own_models(settings, book.models).models
    own = {model: own_kind(model.name, settings.models) for model in book.models}
    return {
        model.fingerprint: code_digest(place)
        for model, place in own.items()
        if place and not sections.get(model.name, {}).get(CODE, "none") and not model.code
    }


def _is_made_by(models: Models, known: KnownModel) -> bool:
    try:
        return card_of(models, known.step, known.name).fingerprint == known.fingerprint
    except HeadwaterError:
        return False  # which is told where it is asked for


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
            f"{card.fingerprint}: its version, code, options or weights have changed. {_way_out(known)}"
        )


def _way_out(known: KnownModel) -> str:
    if known.state is not State.ACTIVE:
        return f"Take the change back, or let it go: headwater retire {known.step} {known.fingerprint}"
    return f"Take the change back, or move over to it: headwater replay {known.step} --model {known.name}"


def unheeded(book: ModelBook, models: Models, wished: Collection[str] = CHOICES) -> list[str]:
    """A sentence for each setting, of these steps, that names another model than the active one."""
    steps = [step for step in CHOICES.values() if step.name in wished]
    wishes = ((step, models.name_of(step.setting), book.active(step.name)) for step in steps)
    return [
        f"{step.setting} names {name}, but {active.name if active else 'no model'} is active. "
        f"To change over: headwater replay {step.name} --model {name}, then headwater activate."
        for step, name, active in wishes
        if name and name != (active.name if active else None)
    ]
