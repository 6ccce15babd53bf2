"""Related: what an object came in, what came in it, and the subtitles beside a video; told by their paths.

Reads   bronze.events, by the names of objects
An e-mail's attachments lie in a folder that has its name, on its day. An archive is no object, so a file of it has only
that name. Subtitles lie where their video lies, under its name, whenever either was last written.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from headwater.domain.modality import Modality, classify
from headwater.domain.tables import EVENTS
from headwater.storage.query.reader import scan
from headwater.storage.tables import catalog as catalogs
from headwater.storage.tables.row_filter import Between

SUBTITLES: Final = (".srt", ".vtt")
_MAIL: Final = ".eml"
_PARTS: Final = f"{_MAIL}.parts"  # of the folder beside an e-mail
_LANGUAGE: Final = re.compile(r"\.[A-Za-z]{2,3}([-_][A-Za-z]{2,4})?")  # clip.en.srt


def related(catalog: catalogs.Tables, object_id: str, meta: dict[str, Any] | None) -> dict[str, Any]:
    """`part_of` is the name of what it came in, with its `id` where that is an object; `parts` came in it; `beside` is
    the video of subtitles, or a video's subtitles. Ids of objects, all as they are now."""
    container = (meta or {}).get("part_of")
    parent = _parent(catalog, object_id) if container else None
    return {
        "part_of": {"name": container, "id": parent} if container else None,
        "parts": sorted(_parts(catalog, object_id)),
        "beside": sorted(_beside(catalog, object_id)),
    }


def _parent(catalog: catalogs.Tables, object_id: str) -> str | None:
    head, found, _ = object_id.rpartition(f"{_PARTS}/")
    if not found or head.count("/") < 3:
        return None
    path = f"{Modality.DOCUMENT.prefix}/{head.partition('/')[2]}{_MAIL}"
    return path if scan(catalog, EVENTS.name, ["object_id"], {"object_id": path}, limit=1).num_rows else None


def _parts(catalog: catalogs.Tables, object_id: str) -> set[str]:
    """Those of an e-mail in it are that one's."""
    prefix, _, rest = object_id.partition("/")
    if prefix != Modality.DOCUMENT.prefix or not rest.lower().endswith(_MAIL):
        return set()
    folders = (f"{modality.prefix}/{rest}.parts/" for modality in Modality)
    return {path for folder in folders for path in _below(catalog, folder) if f"{_PARTS}/" not in path[len(folder) :]}


def _beside(catalog: catalogs.Tables, object_id: str) -> Iterator[str]:
    parts = object_id.split("/", 3)
    kind = classify(object_id)
    if len(parts) < 4 or kind is None:
        return
    _, customer, _, name = parts
    if name.lower().endswith(SUBTITLES):
        stems = set(_stems(name))
        for path in _below(catalog, f"{Modality.VIDEO.prefix}/{customer}/"):
            if _stem(path.split("/", 3)[3]) in stems:
                yield path
    elif kind[0] is Modality.VIDEO:
        for path in _below(catalog, f"{Modality.DOCUMENT.prefix}/{customer}/"):
            if path.lower().endswith(SUBTITLES) and _stem(name) in _stems(path.split("/", 3)[3]):
                yield path


def _below(catalog: catalogs.Tables, folder: str) -> set[str]:
    """Keys are plain ASCII, so all that begin with the folder stand between it and the sign after its slash."""
    between = Between(folder, f"{folder[:-1]}0")
    return set(scan(catalog, EVENTS.name, ["object_id"], {"object_id": between})["object_id"].to_pylist())


def _stem(name: str) -> str:
    return name.rpartition(".")[0]


def _stems(name: str) -> Iterator[str]:
    """Of subtitles also without their language."""
    yield (stem := _stem(name))
    before, dot, language = stem.rpartition(".")
    if dot and _LANGUAGE.fullmatch(f".{language}"):
        yield before
