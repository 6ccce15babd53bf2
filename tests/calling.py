"""A command called in this process: its exit code, and what it said on stdout and stderr."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headwater.cli.main import main


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Answer:
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    return Answer(code, *capsys.readouterr())
