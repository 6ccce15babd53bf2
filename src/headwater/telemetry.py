"""Telemetry: what a run did, as JSON lines that a person can read and a program can ship.

Writes  <lake>/logs/headwater.jsonl, and .1 to .4, older by number

`note` may be called from anywhere, and says nothing where nobody listens: in a reading command, in a Spark worker. A
process works on one lake at a time; lines go to the one that `writing` was last asked for.
Invariant: telling never stops the work. A line that cannot be written, on a full disk say, is dropped.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final

from headwater.clock import Clock, to_text, utc_now

FILE_NAME: Final = "headwater.jsonl"
LEVELS: Final = ("debug", "info", "warning", "error")
# A commit is a line of 200 bytes: eighty thousand commits to a file, a day and a half of one every two seconds.
ROLL_BYTES: Final = 16 << 20
KEPT_FILES: Final = 4


@dataclass(frozen=True, slots=True)
class Sink:
    """Where lines go. `echo` hears each as it is written."""

    directory: Path
    level: str = "info"
    clock: Clock = utc_now
    echo: Callable[[str], None] | None = None
    roll_bytes: int = ROLL_BYTES

    def write(self, event: str, level: str, stage: str | None, fields: dict[str, Any]) -> None:
        if LEVELS.index(level) < LEVELS.index(self.level):
            return
        head = {"at": to_text(self.clock()), "level": level, "event": event} | ({"stage": stage} if stage else {})
        line = json.dumps({**head, **fields}, ensure_ascii=True, default=str)
        if self.echo is not None:
            self.echo(line)
        with suppress(OSError):
            self._append(f"{line}\n".encode())

    def _append(self, line: bytes) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._locked() as file:
            file.write(line)
            full = file.tell() >= self.roll_bytes
            if full:
                self._roll()

    @contextmanager
    def _locked(self) -> Iterator[IO[bytes]]:
        """The file of that name, whoever rolls it meanwhile: another process may write here too."""
        while True:
            with (self.directory / FILE_NAME).open("ab", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file.fileno()), os.stat(self.directory / FILE_NAME)):
                        yield file
                        return

    def _roll(self) -> None:
        names = [FILE_NAME, *(f"{FILE_NAME}.{number}" for number in range(1, KEPT_FILES + 1))]
        for newer, older in reversed(list(pairwise(names))):
            with suppress(FileNotFoundError):
                (self.directory / newer).replace(self.directory / older)


_sinks: list[Sink] = []


def note(event: str, *, level: str = "info", stage: str | None = None, **fields: Any) -> None:
    """One line: what happened (`stage.committed`), how bad it is, to which stage, and the figures."""
    if _sinks:
        _sinks[-1].write(event, level, stage, fields)


@contextmanager
def writing(sink: Sink) -> Iterator[None]:
    """Lines go there until the block ends."""
    _sinks.append(sink)
    try:
        yield
    finally:
        _sinks.remove(sink)
