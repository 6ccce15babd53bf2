"""Register models: those of the settings, and one that is named for some objects, in the lake's book."""

from headwater import telemetry
from headwater.clock import Clock
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.steps import CHOICES
from headwater.domain.tables import EMBEDDINGS, EVENTS, TEXT_TABLES
from headwater.flow.models.choice import (
    card_of,
    codes_seen,
    fitting,
    known_model,
    require_same,
    settled,
    step_of,
    unheeded,
    with_own_models,
)
from headwater.flow.models.loaded import models_of
from headwater.flow.models.port import ModelCard
from headwater.settings import Settings
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import change_book, note_codes, read_book
from headwater.storage.tables.read_progress import read_progress


def settle_models(settings: Settings, ledger: Ledger, clock: Clock) -> None:
    """Where a step has no rows yet, the model that is set is its first; elsewhere the book stands. In a lake that has
    rows of any step, a default is no reason to take another model for one that has none."""
    # An optional step's rows stand among another one's; whether there are none yet is told by the events.
    tables = {name: EVENTS if step.optional else step.table for name, step in CHOICES.items()}
    empty = [name for name, table in tables.items() if not read_progress(settings, table).next_seq]
    set_by_hand = [name for name, step in CHOICES.items() if not settings.is_default(step.setting)]
    is_new = not any(read_progress(settings, table).next_seq for table in (*TEXT_TABLES, EMBEDDINGS))
    wished = tuple(CHOICES) if is_new else set_by_hand

    def settle(book: ModelBook) -> ModelBook:
        models = models_of(with_own_models(settings, book.models) if is_new else fitting(settings, book))
        return settled(book, models, empty, clock(), wished)

    book = change_book(ledger, settle)
    note_codes(ledger, codes_seen(settings, book))
    for sentence in unheeded(book, models_of(settings), set_by_hand):
        telemetry.note("setting.unheeded", level="warning", detail=sentence)


def check_models(settings: Settings, ledger: Ledger, clock: Clock, name: str | None = None) -> None:
    """Raises what a run would stumble over: a model that is not there, or is another one by now. Starts no JVM, and
    loads none. With `name` also the one that a retry is for."""
    settle_models(settings, ledger, clock)
    book = read_book(ledger)
    for step in CHOICES:
        check_cards(settings, book, step)
    if name is not None:
        step_of(models_of(fitting(settings, book)), name)


def check_cards(settings: Settings, book: ModelBook, step: str) -> list[ModelCard]:
    """Of the models that a step is done by, and before there are any of the one that is set; Conflict where a name
    stands for another model by now."""
    models = models_of(fitting(settings, book))
    kept = book.kept(step)
    if not kept and (CHOICES[step].optional and not models.name_of(CHOICES[step].setting)):
        return []
    if not kept:
        return [models.card(CHOICES[step].setting)]
    cards = [card_of(models, step, known.name) for known in kept]
    for known, card in zip(kept, cards, strict=True):
        require_same(known, card)
    return cards


def register_model(settings: Settings, ledger: Ledger, clock: Clock, name: str) -> KnownModel:
    """A model that the book may not know yet, for some objects only."""
    models = models_of(fitting(settings, read_book(ledger)))
    step = step_of(models, name)
    known = known_model(models, step, name, State.PARTIAL, clock(), replayed=True)
    return change_book(ledger, lambda book: book.with_new(known)).get(step, known.fingerprint) or known
