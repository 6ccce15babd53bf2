"""Commands in processes of their own that cost no more than a fork: of one that has imported what commands need.

Nothing that starts threads is imported there, and no Spark.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple

_IMPORTED: Final = (
    "headwater.cli.main",
    "headwater.cli.output",
    "headwater.facets.models",
    "headwater.flow.search",
    "pyiceberg.catalog.sql",
    "duckdb",
    "fsspec",
    "obstore",
    "rich.console",
)


class Answer(NamedTuple):
    """As of `headwater`; the code is -9 where it was killed."""

    code: int
    out: str
    err: str
    spark: bool
    """Whether it imported Spark."""


class Forks:
    def __init__(self, server: "subprocess.Popen[str]") -> None:
        self._server = server

    def call(self, *arguments: str | Path, fault: str = "") -> Answer:
        """One command, as it was or as `HEADWATER_FAULT` says."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps([fault, *map(str, arguments)]) + "\n")
        self._server.stdin.flush()
        return Answer(*json.loads(self._server.stdout.readline()))


@contextmanager
def forking() -> Iterator[Forks]:
    line = [sys.executable, "-m", "forked"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield Forks(server)
        assert server.stdin is not None
        server.stdin.close()


def _serve() -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            answer = _call(*json.loads(line))
            with os.fdopen(writing, "w") as pipe:
                json.dump(answer, pipe)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            answered = pipe.read()
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(answered or json.dumps(Answer(killed, "", "", spark=False)), flush=True)


def _call(fault: str, *arguments: str) -> Answer:
    from headwater import faults
    from headwater.cli.main import main

    faults._ARMED = fault or None
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main([*arguments])
    return Answer(code, out.getvalue(), err.getvalue(), "pyspark" in sys.modules)


if __name__ == "__main__":
    _serve()
