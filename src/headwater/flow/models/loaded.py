"""The models of a lake in one process: found by the setting that names them, loaded once, entered by few at a time."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import replace
from typing import Any

from headwater.domain.steps import EXTRACT
from headwater.flow.models.answers import checked_answers, checked_said, loading, model_faults
from headwater.flow.models.documents import KeepPages, Pdfium
from headwater.flow.models.port import SAMPLE_RATE, Model, ModelCard, Samples, Sound
from headwater.flow.models.registry import Sections, load_model
from headwater.flow.models.spending import require_money
from headwater.flow.models.waiting import waiting
from headwater.settings import SETTINGS, Settings


def models_of(settings: Settings) -> "Models":
    return Models({setting.name: settings[setting.name] for setting in SETTINGS}, settings.models)


class Models:
    """The models that settings name, each loaded when first needed and kept. Threads may share it."""

    def __init__(
        self, settings: Mapping[str, Any], sections: Sections, loading: Callable[[bool], None] | None = None
    ) -> None:
        """`loading` is told when a model begins to load and when it is there."""
        self._settings = settings
        self._sections = sections
        self._loading = loading or (lambda begun: None)
        self._known: dict[str, GuardedModel] = {}
        self._lock = threading.RLock()

    def chosen(self, setting: str, name: str) -> "Models":
        """The same models, but `setting` names this one."""
        other = copy(self)
        other._settings = {**self._settings, setting: name}
        return other

    def card(self, setting: str) -> ModelCard:
        """By setting, or by the name of a model that no setting names. Loads nothing."""
        return self._find(self.name_of(setting)).card

    def loaded(self, setting: str) -> "GuardedModel":
        """By setting: `models.transcribe`."""
        return self._load(self.name_of(setting))

    def _load(self, name: str) -> "GuardedModel":
        with self._lock:
            model = self._find(name)
            if not model.loaded:
                if isinstance(model.inner, Pdfium) and model.inner.reader is not None:
                    self._load(self.name_of(EXTRACT.helper_setting))
                self._loading(True)
                try:
                    with loading(name):
                        model.load()
                finally:
                    self._loading(False)
            return model

    def name_of(self, setting: str) -> str:
        return str(self._settings[setting]) if setting.startswith("models.") else setting

    def _find(self, name: str) -> "GuardedModel":
        with self._lock:
            if name not in self._known:
                model = load_model(name, self._sections)
                if isinstance(model, Pdfium):
                    model.reader = self._find(self.name_of(EXTRACT.helper_setting))
                self._known[name] = GuardedModel(model)
            return self._known[name]


class GuardedModel:
    """A `Model` that no more threads enter than its card allows, and whose answers are judged as they leave it."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        self.loaded = False
        self._room = threading.BoundedSemaphore(max(1, inner.card.concurrency))

    @property
    def card(self) -> ModelCard:
        return self.inner.card

    def load(self) -> None:
        self.inner.load()
        self.loaded = True

    def _waiting(self) -> AbstractContextManager[None]:
        """A model of somebody else's that is paid or waits for a machine; our own endpoints say it call by call."""
        card = self.card
        elsewhere = card.price > 0 or card.deadline_seconds > 0
        return waiting() if elsewhere and not self.tells_waiting else nullcontext()

    @property
    def tells_waiting(self) -> bool:
        """Whether it says by itself that it waits, and what that costs."""
        return bool(getattr(self.inner, "tells_waiting", False))

    @property
    def reads_pages(self) -> bool:
        """Whether it has a `read` of its own, which tells what it has after each page."""
        return hasattr(self.inner, "read")

    def read(self, document: Any, keep: KeepPages) -> Any:
        """One document, page by page where the model can."""
        if not self.reads_pages:
            return self.run([document])[0]
        with self._room, model_faults():
            return checked_said(self.inner.read(document, keep))  # type: ignore[attr-defined]

    def _affordable(self, batch: Sequence[Any]) -> Sequence[Any]:
        """Held to the purse before it is asked and, of a sound, while it is heard; our endpoints do so themselves."""
        card = self.card
        if not card.price or self.tells_waiting:
            return batch
        sounds = [one for one in batch if isinstance(one, Sound)]
        if not sounds:
            require_money(card.cost(images=len(batch), calls=len(batch)))
            return batch
        return [replace(sound, blocks=_within_purse(card, sound.blocks)) for sound in sounds]

    def run(self, batch: Sequence[Any]) -> Sequence[Any]:
        with self._room, self._waiting(), model_faults():
            # In here, because a generator runs as it is read.
            return checked_answers(self.inner.run(self._affordable(batch)), len(batch), self.card)


def _within_purse(card: ModelCard, blocks: Iterator[Samples]) -> Iterator[Samples]:
    samples = 0
    for block in blocks:
        samples += len(block)
        require_money(card.cost(seconds=samples / SAMPLE_RATE))
        yield block
