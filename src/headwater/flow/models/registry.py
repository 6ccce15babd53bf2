"""The models by name: built in, installed by others under the entry-point group `headwater.models`, or named by their
place, `package.module:Class`.

A section `[model.NAME]` of headwater.toml gives a model a name of its own: `kind` is one of those, and every other key
is passed to it as an option.
"""

import difflib
import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from headwater.errors import HeadwaterError, InvalidRequest, describe
from headwater.flow.models.own_code import OwnModel, code_digest, is_own, make_findable, search
from headwater.flow.models.port import Model

GROUP: Final = "headwater.models"
KIND: Final = "kind"
# Told with a model's options to who cannot know them: where its module lies, and what counts as its code.
DIRECTORY: Final = "source_directory"
CODE: Final = "source_code"

MODELS: Final[dict[str, str]] = {
    "moonshine": "headwater.flow.models.moonshine:Moonshine",
    "pp-ocr": "headwater.flow.models.pp_ocr:PpOcr",
    "static": "headwater.flow.models.static:Static",
    "minilm": "headwater.flow.models.minilm:MiniLm",
    "bge": "headwater.flow.models.bge:Bge",
    "pocketsphinx": "headwater.flow.models.speech:PocketSphinx",
    "rapidocr": "headwater.flow.models.pictures:RapidOcr",
    "pdfium": "headwater.flow.models.documents:Pdfium",
    "lexical": "headwater.flow.models.lexical:Lexical",
    "inline": "headwater.flow.models.inline:Inline",
    "probe": "headwater.flow.models.inline:Probe",
    "readers": "headwater.flow.models.inline:Readers",
    "faster-whisper": "headwater.flow.models.whisper:FasterWhisper",
    "fastembed": "headwater.flow.models.fastembed_text:FastEmbed",
    "fastembed-clip": "headwater.flow.models.fastembed_pictures:FastEmbedClip",
    "openai-transcription": "headwater.flow.models.endpoint_speech:OpenAiTranscription",
    "openai-caption": "headwater.flow.models.endpoint_pictures:OpenAiCaption",
    "openai-embeddings": "headwater.flow.models.endpoint_vectors:OpenAiEmbeddings",
}

# These run nothing but our own Python, and wait for nobody without a deadline: a worker may have them in itself.
HARMLESS: Final = frozenset({"inline", "lexical", "openai-embeddings", "probe"})

Sections = Mapping[str, Mapping[str, Any]]  # by name: the options of `[model.NAME]`


def load_model(name: str, sections: Sections | None = None) -> Model:
    """The model with its card; its weights wait for `load()`. Raises InvalidRequest on an unknown name or option."""
    # From 1.29 on, onnxruntime reports to its makers from every process, unless it is told not to before it starts.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    options = dict((sections or {}).get(name, {}))
    kind, code = str(options.pop(KIND, name)), options.pop(CODE, None)
    search(str(options.pop(DIRECTORY, "")))
    build = _find(kind, sections or {})
    try:
        inspect.signature(build).bind(**options)
    except TypeError as error:
        known = ", ".join(inspect.signature(build).parameters) or "none"
        raise InvalidRequest(f"[model.{name}] does not fit: {error}. Its options: {known}.") from error
    try:
        model: Model = build(**options)
    except Exception as error:  # a model's own; what it needs belongs into `load`
        if isinstance(error, HeadwaterError):
            raise
        raise InvalidRequest(f"The model {name} cannot be made: {describe(error)}. Mend it, then try again.") from error
    if not is_own(kind):
        return model
    return OwnModel(model, code_digest(kind) if code is None else str(code))


def own_kind(name: str, sections: Sections) -> str:
    """The place of a model of one's own; nothing for any other."""
    kind = str(sections.get(name, {}).get(KIND, name))
    return kind if is_own(kind) else ""


def is_harmless(name: str, sections: Sections | None = None) -> bool:
    """Whether no text can make it end or freeze the process that it is in."""
    return (sections or {}).get(name, {}).get(KIND, name) in HARMLESS


def installed() -> dict[str, EntryPoint]:
    """What other packages bring, by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def _find(kind: str, sections: Sections) -> Callable[..., Model]:
    if place := kind if ":" in kind else MODELS.get(kind):
        found: Callable[..., Model] = find_place(place)
        return found
    others = installed()
    if kind in others:
        return find_place(others[kind].value)  # type: ignore[no-any-return]
    known = [*sections, *MODELS, *others]
    near = difflib.get_close_matches(kind, known, n=1, cutoff=0.3)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise InvalidRequest(f"Unknown model {kind}.{hint} A model of your own is named package.module:Class.")


def find_place(place: str) -> Any:
    """What stands at `package.module:Name`."""
    module, _, attribute = place.partition(":")
    try:
        make_findable(place)
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidRequest(f"Nothing stands at {place}: {error}. Name it package.module:Name.") from error
    except Exception as error:  # its own code, which raised while it was imported
        raise InvalidRequest(f"{module} cannot be imported: {describe(error)}. Mend it, then try again.") from error
