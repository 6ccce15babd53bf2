"""Which models do which steps: the book's choice, as a plan that travels to the workers."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from headwater.domain.modality import Modality
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.steps import Step
from headwater.domain.tables import EVENTS
from headwater.flow.derive.work import PlannedStep, Work
from headwater.flow.models.choice import fitting, require_same
from headwater.flow.models.loaded import Models, models_of
from headwater.settings import Settings


def plan_work(settings: Settings, book: ModelBook, *, now: datetime, share: int = 1, reload: str = "") -> Work:
    """Every model that is kept for each step. Loads none: a card tells who will have made a row."""
    settings = fitting(settings, book)
    models = models_of(settings)
    steps = {
        modality.value: tuple(planned for step in modality.steps for planned in _planned(step, models, book))
        for modality in Modality
    }
    return Work(steps, settings, now, share, reload)


def only_by(book: ModelBook, model: KnownModel) -> ModelBook:
    """The book as if `model` were the only one of its step: for work on it alone."""
    others = tuple(other for other in book.models if other.step != model.step)
    return ModelBook((*others, replace(model, state=State.STANDBY)))


def _planned(step: Step, models: Models, book: ModelBook) -> Iterator[PlannedStep]:
    if not step.setting:
        yield _plan(step, models, None)
        return
    for known in book.kept(step.name):
        chosen = models.chosen(step.setting, known.name)
        require_same(known, chosen.card(step.setting))
        # A replay plans its model alone: there is no other that could go on without it.
        standby = known.state is State.STANDBY and book.active(step.name) is not None
        yield replace(_plan(step, chosen, known), standby=standby)


def _plan(step: Step, models: Models, known: KnownModel | None) -> PlannedStep:
    card = models.card(step.named_by)
    return PlannedStep(
        name=step.name,
        table=step.table.name,
        model_name=known.name if known else step.fixed_model,
        label=card.label,
        fingerprint=card.fingerprint,
        position=known.position_in(EVENTS.name) if known else EVENTS.name,
        setting=step.setting or None,
        memoised=known is not None and not card.instant,
        paid=card.price > 0,
        concurrency=card.concurrency,
        dimension=card.dimension,
    )
