"""Masking: a secret that somebody says back to us is not said on, in whatever spelling it comes.

Mask first, then cut: a text that was cut in the middle of a secret holds a part of it that nobody recognises.
"""

import base64
import html
import re
from collections.abc import Iterator
from typing import Any, Final

from headwater.settings import MASK

# A shorter one is a word that turns up by itself; and who cut a secret before us left at least so much of it.
LETTERS_MIN: Final = 4
PART_LETTERS: Final = 8
# What a service answers well is only searched for secrets that nobody says by chance.
SURE_LETTERS: Final = 12


class Mask:
    """Takes these secrets out of texts. A secret that is empty, or short as a word, is let be."""

    def __init__(self, *secrets: str) -> None:
        self._secrets = tuple(secret for secret in secrets if len(secret) >= LETTERS_MIN)
        patterns = [pattern for secret in self._secrets for pattern in _patterns(secret)]
        self._whole = re.compile("|".join(patterns) or r"(?!)", re.IGNORECASE)

    def text(self, text: str) -> str:
        masked = self._whole.sub(MASK, text)
        for secret in self._secrets:
            masked = _without_parts(_without_parts(masked, secret)[::-1], secret[::-1])[::-1]
        return masked

    def answer(self, found: Any) -> Any:
        """JSON with every text in it masked."""
        if not any(len(secret) >= SURE_LETTERS for secret in self._secrets):
            return found
        if isinstance(found, str):
            return self.text(found)
        if isinstance(found, dict):
            return {self.text(name): self.answer(value) for name, value in found.items()}
        if isinstance(found, list) and not (found and isinstance(found[0], float)):
            return [self.answer(value) for value in found]
        return found


def _patterns(secret: str) -> Iterator[str]:
    """As it is, and as it travels in an address, a page, JSON, a log or another header."""
    yield "".join(map(_letter, secret))
    yield re.escape(secret.encode().hex())
    if len(secret) >= PART_LETTERS:
        yield from map(re.escape, _in_base64(secret.encode()))


def _letter(letter: str) -> str:
    """One letter of it, escaped in any way, or not."""
    code = ord(letter)
    escaped = [f"%{code:02x}", rf"\\{{1,4}}u{code:04x}", rf"\\{{1,4}}x{code:02x}"]
    escaped += [f"&#x0{{0,6}}{code:x};", f"&#0{{0,6}}{code};"]
    named = html.escape(letter)
    plain = r"(?:\+| |%20)" if letter == " " else rf"\\{{0,4}}{re.escape(letter)}"
    return "(?:" + "|".join([plain, *([re.escape(named)] if named != letter else []), *escaped]) + ")"


def _in_base64(raw: bytes) -> Iterator[str]:
    """The letters that stand for it wherever it begins in what was encoded."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw).decode()
        # The first and the last letters are shared with what stands beside it.
        inner = encoded[(0, 2, 3)[before] : len(encoded) - (0, 3, 2)[(before + len(raw)) % 3]]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


def _without_parts(text: str, secret: str) -> str:
    """Masks what is a beginning of the secret, long enough to be no chance."""
    if len(secret) < PART_LETTERS + 4:
        return text
    start, small, wanted = 0, text.lower(), secret.lower()
    if len(small) != len(text):
        small = text  # a letter whose small form is longer: compared as it stands
    out = []
    while (at := small.find(wanted[:PART_LETTERS], start)) >= 0:
        end = at + PART_LETTERS
        while end < len(small) and end - at < len(wanted) and small[end] == wanted[end - at]:
            end += 1
        out.append(text[start:at] + MASK)
        start = end
    return "".join(out) + text[start:]
