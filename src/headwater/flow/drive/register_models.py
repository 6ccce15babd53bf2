"""Register models: those of the settings, and one that is named for some objects, in the lake's book."""

from headwater import telemetry
from headwater.clock import Clock
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.steps import CHOICES
from headwater.domain.tables import EMBEDDINGS, EVENTS, TEXT_TABLES
from headwater.flow.models.choice import fitting, known_model, settled, step_of, unheeded
from headwater.flow.models.loaded import models_of
from headwater.settings import Settings
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.ledger.model_book import change_book, read_book
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
        models = models_of(settings if is_new else fitting(settings, book))
        return settled(book, models, empty, clock(), wished)

    book = change_book(ledger, settle)
    for sentence in unheeded(book, models_of(settings), set_by_hand):
        telemetry.note("setting.unheeded", level="warning", detail=sentence)


def register_model(settings: Settings, ledger: Ledger, clock: Clock, name: str) -> KnownModel:
    """A model that the book may not know yet, for some objects only."""
    models = models_of(fitting(settings, read_book(ledger)))
    step = step_of(models, name)
    known = known_model(models, step, name, State.PARTIAL, clock(), replayed=True)
    return change_book(ledger, lambda book: book.with_new(known)).get(step, known.fingerprint) or known
