"""A step of derivation as a value: its name, the table that it fills, the setting that names its model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.domain.tables import Table
from headwater.errors import DataFault
from headwater.flow.derive.source import Source
from headwater.flow.models.documents import Pdfium
from headwater.flow.models.port import Model, ModelCard, Said
from headwater.flow.models.registry import load_model

StepResult = dict[str, Any]
PROBE_FIELDS: Final = ("duration_ms", "width", "height", "pages", "channels", "sample_rate", "codec")


@dataclass(frozen=True, slots=True)
class Step:
    """`run` gives a row's own columns, or None where there is nothing to say: a video without sound has no transcript.

    A step without `model_setting` uses the model named by `fixed_model`.
    """

    name: str
    table: Table
    run: Callable[[Source, "Models"], StepResult | None]
    model_setting: str | None = None
    fixed_model: str = "probe"


class Models:
    """The models that settings name, each loaded when first needed and kept."""

    def __init__(self, settings: Mapping[str, Any], loading: Callable[[bool], None] | None = None) -> None:
        """`loading` is told when a model begins to load and when it is there."""
        self._settings = settings
        self._loading = loading or (lambda begun: None)
        self._known: dict[str, Model] = {}
        self._loaded: set[str] = set()

    def card(self, step: Step) -> ModelCard:
        """Who will have made the step's rows. Loads nothing."""
        return self._find(step.model_setting or step.fixed_model).card

    def loaded(self, setting: str) -> Model:
        """By setting: `models.transcribe`."""
        model = self._find(setting)
        if setting not in self._loaded:
            if isinstance(model, Pdfium) and model.reader is not None:
                self.loaded("models.caption")
            self._loading(True)
            model.load()
            self._loading(False)
            self._loaded.add(setting)
        return model

    def _find(self, setting: str) -> Model:
        if setting not in self._known:
            model = load_model(str(self._settings[setting]) if setting.startswith("models.") else setting)
            if isinstance(model, Pdfium):
                model.reader = self._find("models.caption")
            self._known[setting] = model
        return self._known[setting]


def probed(**found: Any) -> StepResult:
    """A probe's result: every field, None where it does not apply."""
    return {name: found.get(name) for name in PROBE_FIELDS}


def said_result(said: Said, model_seconds: float) -> StepResult:
    """A row's columns; raises DataFault BAD_OUTPUT where a model answered with something unusable."""
    if not isinstance(said, Said) or not isinstance(said.text, str):
        raise DataFault("BAD_OUTPUT", f"The model answered with {type(said).__name__}, not with text.")
    if said.confidence is not None and not 0 <= said.confidence <= 1:
        raise DataFault("BAD_OUTPUT", f"The model's confidence is {said.confidence}; it must be between 0 and 1.")
    return {
        "text": said.text,
        "language": said.language,
        "confidence": said.confidence,
        "segments": [segment.to_dict() for segment in said.segments],
        "model_seconds": round(model_seconds, 4),
    }
