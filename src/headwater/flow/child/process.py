"""A child process as its parent sees it: started with little, spoken to by messages, ended when the parent likes."""

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import Any, Final

from headwater.flow.child.environment import child_environment
from headwater.flow.child.frames import Unpacker, packed

READ_BYTES: Final = 1 << 20


class ChildProcess:
    """A module that is run, with `config` as its first message. `end` it; it ends by itself where this one dies."""

    def __init__(self, module: str, config: Any, variables: str) -> None:
        """`variables` names those that it gets beside the usual ones."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the child
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=child_environment(variables),
        )
        self._unpacker = Unpacker()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
        self.send(config)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def send(self, message: Any) -> None:
        with suppress(OSError):  # it has died: reading will tell how
            self.process.stdin.write(packed(message))  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]

    def receive(self, deadline: float) -> bytes | None:
        """What the child says; nothing where it has died; None where it says nothing until then, by the monotonic
        clock."""
        if not self._selector.select(max(0.0, deadline - time.monotonic())):
            return None
        return os.read(self.process.stdout.fileno(), READ_BYTES)  # type: ignore[union-attr]

    def unpack(self, data: bytes) -> list[Any]:
        """The messages that are whole by now; raises ValueError or RecursionError where they are none."""
        return self._unpacker.feed(data)

    def how_it_died(self) -> str:
        """The name of a signal, or an exit code."""
        code = self.process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def end(self) -> None:
        self._selector.close()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self.process.kill()
        self.process.wait()
        self._errors.close()
