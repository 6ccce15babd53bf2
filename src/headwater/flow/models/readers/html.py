"""HTML by Lexbor, the way a browser builds its tree: what a reader of the page sees, each block below its headings.

Scripts are not run, nothing is fetched, and what the page hides is not told.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from headwater.domain.locator import Locator, Segment
from headwater.errors import DataFault
from headwater.flow.models.readers.headings import Headings
from headwater.flow.models.readers.plain import charset_of, decode, read_bytes, tidy

_UNSEEN: Final = (
    "script, style, template, noscript, head > :not(title), svg, iframe, object, [hidden], "
    '[style*="display:none" i], [style*="display: none" i], [style*="visibility:hidden" i], '
    '[style*="visibility: hidden" i]'
)
# Stand within a line; all else begins one.
_WITHIN: Final = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img",
    "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt",
    "u", "var", "wbr",
}  # fmt: skip
_CHARSET: Final = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w-]{2,40})", re.IGNORECASE)
_CHARSET_BYTES: Final = 4_096  # a browser looks no further
_UP_MAX: Final = 64  # elements that a text is looked at within
# Lexbor's time grows with the square of the depth: 0.2 s of 10,000, two minutes of 200,000. A browser cuts at 512.
_DEPTH_MAX: Final = 10_000
# Void, or ended by what follows them: however many there are, they do not stand in one another.
_FLAT: Final = {
    "area", "base", "body", "br", "caption", "col", "colgroup", "dd", "dt", "embed", "head", "hr", "html", "img",
    "input", "li", "link", "meta", "optgroup", "option", "p", "param", "rp", "rt", "source", "tbody", "td", "tfoot",
    "th", "thead", "tr", "track", "wbr",
}  # fmt: skip
# Comments, and what holds no tags whatever it looks like; each that nobody ends goes on to the end.
_TAGS: Final = re.compile(
    r"<!--(?:-?>|.*?--!?>|.*)|<(script|style|textarea|title|xmp|iframe)\b(?:.*?</\1\b|.*)|<(/?)([a-z][^\s/>]*)[^>]*>?",
    re.IGNORECASE | re.DOTALL,
)


def count_pages(file: BinaryIO) -> int | None:
    _page(file)
    return None


def charset(file: BinaryIO) -> str:
    return _charset(read_bytes(file))


def segments(file: BinaryIO) -> Iterator[Segment]:
    return html_segments(_page(file))


def _page(file: BinaryIO) -> str:
    data = read_bytes(file)
    return decode(data, _charset(data))


def _charset(data: bytes) -> str:
    """As the page says it, unless its bytes say otherwise."""
    named = _CHARSET.search(data[:_CHARSET_BYTES])
    if named is None or b"\0" in data:
        return charset_of(data)
    try:
        data.decode()
        return "utf-8"
    except UnicodeDecodeError:
        return named[1].decode().lower()


def html_segments(page: str) -> Iterator[Segment]:
    from selectolax.lexbor import LexborHTMLParser

    _require_shallow(page)
    tree = LexborHTMLParser(page)
    for unseen in tree.css(_UNSEEN):
        unseen.decompose()
    if tree.root is None:
        return
    headings, held, block, level = Headings(), list[str](), None, 0
    for node in tree.root.traverse(include_text=True):
        if node.tag == "br":
            held.append("\n")
        elif node.tag == "img":
            held.append(f" {node.attributes.get('alt') or ''} ")
        elif node.tag == "-text":
            within, found = _block_of(node)
            if within != block:
                yield from _told(held, headings, level)
                held, block, level = [], within, found
            held.append(re.sub(r"\s+", " ", node.text_content or ""))
    yield from _told(held, headings, level)


def _require_shallow(page: str) -> None:
    """Before a tree is built. What fools a look at the tags alone is ended by the deadline, as all that is slow."""
    if page.count("<") <= _DEPTH_MAX:
        return
    depth, open_tags = 0, Counter[str]()
    for found in _TAGS.finditer(page):
        ends, name = found[2], (found[3] or "").lower()
        if not name or name in _FLAT or found[0].endswith("/>"):
            continue
        if not ends:
            open_tags[name] += 1
            depth += 1
        elif open_tags[name]:
            open_tags[name] -= 1
            depth -= 1
        if depth > _DEPTH_MAX:
            raise DataFault("UNREADABLE", f"Its elements stand in one another more than {_DEPTH_MAX:,} deep.")


def _told(held: list[str], headings: Headings, level: int) -> Iterator[Segment]:
    if text := tidy("".join(held)):
        if level:
            headings.enter(level, text)
        yield Segment(text, Locator(section=headings.path()))


def _block_of(node: Any) -> tuple[int, int]:
    """The element whose line the text is on, and the level of the heading that it stands in, or 0."""
    above = node.parent
    for _ in range(_UP_MAX):
        if above is None or above.tag not in _WITHIN:
            break
        above = above.parent
    if above is None:
        return 0, 0
    level = re.fullmatch("h([1-6])", above.tag or "")
    return above.mem_id, int(level[1]) if level else 0
