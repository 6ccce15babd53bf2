"""A model by the name that a person gives: as the settings make it now, or as the book knows it. Nothing here loads one
but `load_known`."""

from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.errors import HeadwaterError
from headwater.flow.models.choice import card_of, fitting, known_model, require_same, settled, step_of
from headwater.flow.models.loaded import Models, models_of
from headwater.flow.models.port import Model, ModelCard
from headwater.flow.models.registry import load_model
from headwater.upkeep.parts import Parts


def settled_book(parts: Parts) -> ModelBook:
    """What is known; before the first run, what the settings will begin with."""
    book = parts.book()
    return settled(book, models_of(fitting(parts.settings, book)), (), parts.clock())


def find_step(parts: Parts, model: str) -> str:
    """The step that a model of this name is for."""
    return step_of(_models(parts), model)


def find_candidate(parts: Parts, step: str, model: str) -> KnownModel:
    """A model by name, as the settings make it now; or one of the book, by its label or fingerprint."""
    try:
        return known_model(_models(parts), step, model, State.BUILDING, parts.clock(), replayed=True)
    except HeadwaterError:
        for known in parts.book().of(step):
            if model in {known.label, known.fingerprint}:
                return known
        raise


def card_of_known(parts: Parts, known: KnownModel) -> ModelCard:
    return card_of(_models(parts), known.step, known.name)


def load_known(parts: Parts, known: KnownModel) -> Model:
    """Conflict where its name stands for another model by now."""
    model = load_model(known.name, fitting(parts.settings, parts.book()).models)
    require_same(known, model.card)
    model.load()
    return model


def _models(parts: Parts) -> Models:
    return models_of(fitting(parts.settings, parts.book()))
