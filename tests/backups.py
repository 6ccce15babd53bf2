"""Losing a lake's parts, and the commands that bring them back, as their JSON tells it."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from headwater.cli.main import main


class Done(NamedTuple):
    code: int
    out: dict[str, Any]

    @property
    def error(self) -> str:
        return str(self.out["error"]["message"])


def headwater(*arguments: object) -> Done:
    out = io.StringIO()
    with redirect_stdout(out):
        code = main([*map(str, arguments), "--json"])
    return Done(code, json.loads(out.getvalue()))


def lose(lake: Path, *names: str) -> None:
    for name in names:
        for file in lake.glob(f"{name}.db*"):
            file.unlink()
