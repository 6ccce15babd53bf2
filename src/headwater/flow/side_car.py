"""Side-cars: `call.wav.json` beside `call.wav` says what is known of it, and is no object of its own.

Reads   a small file beside one that is put
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headwater.domain.meta import META_BYTES_MAX, require_meta, require_thread
from headwater.domain.modality import classify
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.flow.sources import Source

ENDING: Final = ".json"
THREAD: Final = "thread"
_BYTES_MAX: Final = 4 * META_BYTES_MAX  # as a person may have spaced it out


def is_side_car(source: Source) -> bool:
    """Whether the file that it tells of lies beside it."""
    path = str(source.path)
    about = path.removesuffix(ENDING)
    return source.error is None and about != path and classify(about) is not None and os.path.lexists(about)


def read_side_car(source: Source) -> tuple[Mapping[str, Any] | None, str | None]:
    """The meta of a file and its thread, which is the word `thread` of its side-car; neither where it has none.

    Raises InvalidRequest, with the side-car's name, where that is no good.
    """
    if not os.path.lexists(f"{source.path}{ENDING}"):
        return None, None
    beside = _beside(source)
    with beside.open() as stream:
        data = stream.read(_BYTES_MAX + 1)
    try:
        if len(data) > _BYTES_MAX:
            raise ValueError(f"it has more than {_BYTES_MAX} bytes")
        told = json.loads(data.decode("utf-8-sig"))
        if not isinstance(told, dict):
            raise ValueError("it is no JSON object")
        thread = told.pop(THREAD, None)
        return require_meta(told), require_thread(str(thread)) if thread not in (None, "") else None
    except (ValueError, RecursionError, HeadwaterError) as error:
        raise InvalidRequest(f"{beside.path} cannot be the meta of its file: {error}. Mend it, or move it.") from error


def _beside(source: Source) -> Source:
    if not source.parts:
        return replace(source, root=str(Path(source.root).with_name(Path(source.root).name + ENDING)))
    return replace(source, parts=(*source.parts[:-1], source.parts[-1] + ENDING))
