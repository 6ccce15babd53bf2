"""Rendering: what a terminal may be shown, tables, places and sizes. The only module that knows rich.

Data is never trusted: a transcript or a file name may hold escape sequences that would drive the reader's terminal,
so all of it passes through `clean`, and none of it is read as markup.
"""

import json
import math
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Escape sequences first, whole; then control characters (C0 but tab and newline, C1) and signs that reverse text.
_UNSAFE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b."
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]",
    re.DOTALL,
)
_UNSAFE_IN_JSON: Final = re.compile(r"[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_PIPE_WIDTH: Final = 200  # a file or a pager has no width of its own; wide enough that ids stay on one line


def clean(text: str) -> str:
    return _UNSAFE.sub("", text)


def one_line(text: str, width: int | None = None) -> str:
    """Blanks and line breaks become single blanks; longer than `width` is cut with an ellipsis."""
    line = " ".join(clean(text).split())
    return line if width is None or len(line) <= width else line[: width - 1].rstrip() + "…"


def print_json(document: Any) -> None:
    """One document, indented for a person, on one line for a program. What `clean` drops is escaped here."""
    indent = 2 if sys.stdout.isatty() else None
    text = json.dumps(document, ensure_ascii=False, indent=indent, default=str)
    print(_UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found.group()):04x}", text))


@cache
def console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would leave by itself, with the exit code of an error

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Ours(stderr=stderr, highlight=False, markup=False, emoji=False, width=width)


def text(value: Any, style: str = "") -> "Text":
    from rich.text import Text

    return Text(clean(str(value)), style=style)


def say(*parts: "str | Text", stderr: bool = False) -> None:
    """A line that wraps where the terminal ends; plain strings are ours or cleaned here."""
    from rich.text import Text

    line = Text()
    for part in parts:
        line.append_text(part if isinstance(part, Text) else text(part))
    console(stderr=stderr).print(line, soft_wrap=True)


def heading(title: str) -> None:
    say("")
    say(text(title, "bold"))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    numbers: Collection[str] = (),
    *,
    whole: Collection[str] = (),
    cut: bool = False,
) -> None:
    """A plain table; `numbers` are the columns to align right, `whole` those that never wrap.

    With `cut`, a row is one line however narrow it gets.
    """
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        side: Literal["left", "right"] = "right" if column in numbers else "left"
        one_row = cut or column in whole
        drawn.add_column(clean(column), justify=side, overflow="ellipsis" if cut else "fold", no_wrap=one_row)
    for row in rows:
        drawn.add_row(*(value if isinstance(value, Text) else text(value) for value in row))
    console().print(drawn)


def highlighted(snippet: str, marks: Iterable[Sequence[int]]) -> "Text":
    """The snippet on one line, with the marked stretches set off."""
    from rich.text import Text

    drawn, reached = Text(), 0
    for start, end in marks:
        drawn.append(_flat(snippet[reached:start])).append(_flat(snippet[start:end]), "bold yellow")
        reached = end
    return drawn.append(_flat(snippet[reached:]))


def _flat(part: str) -> str:
    return re.sub(r"\s+", " ", clean(part))


def place(locator: Mapping[str, Any] | None) -> str:
    """Where in its object a text stands, for a person: `01:05–01:12 agent`, `page 3`, `frame 00:02`, `§ Prices`."""
    if not locator:
        return ""
    if locator.get("frame_ms") is not None:
        return f"frame {_clock(locator['frame_ms'])}"
    if locator.get("page") is not None:
        return " ".join([f"page {locator['page']}", *_section(locator)])
    if locator.get("start_ms") is not None:
        end = locator.get("end_ms")
        speaker = f" {locator['speaker']}" if locator.get("speaker") else ""
        return _clock(locator["start_ms"]) + (f"–{_clock(end)}" if end is not None else "") + speaker
    return "".join(_section(locator))


def _section(locator: Mapping[str, Any]) -> list[str]:
    return [f"§ {clean(locator['section'])}"] if locator.get("section") else []


def _clock(milliseconds: int) -> str:
    minutes, seconds = divmod(int(milliseconds) // 1000, 60)
    return f"{minutes:02d}:{seconds:02d}"


def money(amount: float) -> str:
    """In the currency of the models' prices; small sums keep two digits that say something."""
    if not amount:
        return "0"
    decimals = min(8, max(2, 1 - math.floor(math.log10(abs(amount)))))
    return f"{amount:,.{decimals}f}"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
