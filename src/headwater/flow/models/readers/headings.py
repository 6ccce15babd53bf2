"""Headings: below which ones a text stands."""

from typing import Final

PATH_LETTERS_MAX: Final = 400
HEADING_LETTERS_MAX: Final = 100


class Headings:
    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def enter(self, level: int, title: str) -> None:
        """A heading ends all those of its level and below."""
        self._open = [(other, text) for other, text in self._open if other < level]
        if flat := " ".join(title.split())[:HEADING_LETTERS_MAX]:
            self._open.append((level, flat))

    def path(self) -> str | None:
        return " › ".join(text for _, text in self._open)[:PATH_LETTERS_MAX] or None
