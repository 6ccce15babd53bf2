"""`[producers.NAME]` of headwater.toml as values: for whom a producer may write, and the tokens it is known by."""

import re
from collections.abc import Mapping
from typing import Any, Final

from headwater.errors import InvalidRequest

SECTION: Final = "producers"
ANYBODY: Final = "*"
_KEYS: Final = {
    "customers": "For whom this producer may write.",
    "token_sha256": "The SHA-256 of the tokens that it is known by.",
}
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
NOBODY: Final = "nobody"  # as a row of quarantine calls who is known by nothing
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")
Producers = Mapping[str, Mapping[str, tuple[str, ...]]]


def producer_sections(file: str, body: Any) -> Producers:
    """Every section with both keys; InvalidRequest names what is odd."""
    if not isinstance(body, Mapping) or not all(isinstance(section, Mapping) for section in body.values()):
        raise InvalidRequest(f"{file}: a producer's rule stands in a section: [{SECTION}.NAME]")
    return {name: _section(f"{file}: [{SECTION}.{name}]", name, section) for name, section in body.items()}


def shown_sections(producers: Producers, origin: str) -> list[dict[str, Any]]:
    """For `headwater settings`: as its other values are told."""
    return [
        {"name": f"{SECTION}.{name}.{key}", "value": ", ".join(values), "origin": origin, "purpose": _KEYS[key]}
        for name, section in producers.items()
        for key, values in section.items()
    ]


def _section(where: str, name: str, section: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    if name != ANYBODY and (not _NAME.fullmatch(name) or name == NOBODY):
        raise InvalidRequest(
            f"{where} needs a name of letters, digits and _ . -, or {ANYBODY} for whoever is not known."
        )
    if odd := sorted(section.keys() - _KEYS.keys()):
        raise InvalidRequest(f"{where} has {odd[0]}; it may have {' and '.join(_KEYS)}.")
    found = {key: _texts(where, key, section.get(key, [])) for key in _KEYS}
    if "customers" not in section:
        raise InvalidRequest(f'{where} must say for whom it may write: customers = ["acme", "beta-*"]')
    if not all(_SHA256.fullmatch(text) for text in found["token_sha256"]):
        raise InvalidRequest(
            f"{where}: token_sha256 must be SHA-256 in hex, as sha256sum prints it, and no token itself."
        )
    if name == ANYBODY and found["token_sha256"]:
        raise InvalidRequest(f"{where} is for whoever has no token; give the one who has it a name.")
    return found


def _texts(where: str, key: str, value: Any) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(text, str) and text for text in listed):
        raise InvalidRequest(f"{where}: {key} must be a list of texts.")
    return tuple(listed)
