"""The models by name. A model of your own is named by its place: `package.module:Class`."""

import difflib
import importlib
from typing import Any, Final

from headwater.errors import InvalidRequest
from headwater.flow.models.port import Model

MODELS: Final[dict[str, str]] = {
    "pocketsphinx": "headwater.flow.models.speech:PocketSphinx",
    "rapidocr": "headwater.flow.models.pictures:RapidOcr",
    "pdfium": "headwater.flow.models.documents:Pdfium",
    "lexical": "headwater.flow.models.lexical:Lexical",
    "inline": "headwater.flow.models.inline:Inline",
    "probe": "headwater.flow.models.inline:Probe",
}


def load_model(name: str) -> Model:
    """The model with its card; its weights wait for `load()`. Raises InvalidRequest on an unknown name."""
    place = name if ":" in name else MODELS.get(name)
    if place is None:
        near = difflib.get_close_matches(name, MODELS, n=1, cutoff=0.3)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise InvalidRequest(f"Unknown model {name}.{hint} A model of your own is named package.module:Class.")
    model: Model = find_place(place)()
    return model


def find_place(place: str) -> Any:
    """What stands at `package.module:Name`."""
    module, _, attribute = place.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidRequest(f"Nothing stands at {place}: {error}. Name it package.module:Name.") from error
