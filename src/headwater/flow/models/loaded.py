"""The models of a lake in one process: found by the setting that names them, loaded once, entered by few at a time."""

import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from headwater.errors import DataFault
from headwater.flow.models.documents import Pdfium
from headwater.flow.models.port import Model, ModelCard
from headwater.flow.models.registry import Sections, load_model
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

    def loaded(self, setting: str) -> Model:
        """By setting: `models.transcribe`."""
        return self._load(self.name_of(setting))

    def _load(self, name: str) -> "GuardedModel":
        with self._lock:
            model = self._find(name)
            if not model.loaded:
                if isinstance(model.inner, Pdfium) and model.inner.reader is not None:
                    self._load(self.name_of("models.scans"))
                self._loading(True)
                model.load()
                self._loading(False)
            return model

    def name_of(self, setting: str) -> str:
        return str(self._settings[setting]) if setting.startswith("models.") else setting

    def _find(self, name: str) -> "GuardedModel":
        with self._lock:
            if name not in self._known:
                model = load_model(name, self._sections)
                if isinstance(model, Pdfium):
                    model.reader = self._find(self.name_of("models.scans"))
                self._known[name] = GuardedModel(model)
            return self._known[name]


class GuardedModel:
    """A `Model` that no more threads enter than its card allows."""

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

    def run(self, batch: Sequence[Any]) -> Sequence[Any]:
        with self._room:
            answers = self.inner.run(batch)
        if len(answers) != len(batch):
            raise DataFault("BAD_OUTPUT", f"The model answered {len(answers)} times to {len(batch)} inputs.")
        return answers
