"""The kinds of file that are taken, as a list for people and programs: `headwater kinds`, docs/kinds.md."""

from typing import Any, Final

from headwater.domain.modality import Modality

# Where in such a file a text is found: the fields of a locator that its rows have.
_OF_MODALITY: Final = {
    Modality.AUDIO: ("start_ms", "end_ms", "speaker"),
    Modality.IMAGE: ("box",),
    Modality.VIDEO: ("start_ms", "end_ms", "frame_ms", "box"),
}
_OF_TYPE: Final = {
    "application/pdf": ("page", "box"),
    "image/gif": ("frame_ms", "box"),
    "application/x-subrip": ("start_ms", "end_ms"),
    "text/vtt": ("start_ms", "end_ms", "speaker"),
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ("page", "section"),
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ("page", "section"),
}


def kinds() -> list[dict[str, Any]]:
    """One entry a content type: its endings, its modality, what is derived from it and how its texts are placed.

    A message comes as the text of its event: it has no endings.
    """
    found = []
    for modality in Modality:
        endings: dict[str, list[str]] = {}
        for ending, kind in modality.content_types.items():
            endings.setdefault(kind, []).append(ending)
        found += [_entry(modality, kind, names) for kind, names in (endings or {"text/plain": []}).items()]
    return found


def _entry(modality: Modality, content_type: str, endings: list[str]) -> dict[str, Any]:
    is_pdf = content_type == "application/pdf"
    passed_over = {"extract": not is_pdf, "read": is_pdf} if modality is Modality.DOCUMENT else {}
    places = _OF_TYPE.get(content_type) or _OF_MODALITY.get(modality, ())
    if not places and modality is Modality.DOCUMENT:
        places = ("section",)
    return {
        "modality": modality.value,
        "content_type": content_type,
        "endings": endings,
        "steps": [step.name for step in modality.steps if not passed_over.get(step.name)],
        "places": list(places),
    }
