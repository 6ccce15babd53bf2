"""Markdown by markdown-it: what it says, each block below its headings. Its marks are not part of the text."""

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from headwater.domain.locator import Locator, Segment
from headwater.flow.models.readers.headings import Headings
from headwater.flow.models.readers.plain import charset, count_pages, read_text, tidy

__all__ = ["charset", "count_pages", "segments"]

_DEEPEST: Final = 100  # lists in lists; deeper ones are passed over


def segments(file: BinaryIO) -> Iterator[Segment]:
    from markdown_it import MarkdownIt

    headings, level = Headings(), 0
    for token in MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable("table").parse(read_text(file)):
        if token.type == "heading_open":
            level = int(token.tag[1:])
        elif token.type in {"inline", "fence", "code_block", "html_block"}:
            text = tidy(_text(token))
            if level:
                headings.enter(level, text)
                level = 0
            if text:
                yield Segment(text, Locator(section=headings.path()))


def _text(token: Any) -> str:
    if token.type == "html_block":
        from headwater.flow.models.readers.html import html_segments

        return "\n".join(part.text for part in html_segments(token.content))
    if token.children is None:
        return str(token.content)
    return "".join(_word(child) for child in token.children)


def _word(child: Any) -> str:
    if child.type in {"softbreak", "hardbreak"}:
        return "\n"
    return str(child.content) if child.type in {"text", "code_inline", "image", "text_special"} else ""
