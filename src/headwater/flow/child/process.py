"""A child process as its parent sees it: started with little, spoken to by messages, ended when the parent likes."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import suppress
from typing import IO, Any, Final

from headwater.flow.child.environment import child_environment
from headwater.flow.child.frames import Unpacker, packed

READ_BYTES: Final = 1 << 20
END_SECONDS: Final = 5.0  # for a child that has closed its pipe to end


class ChildProcess:
    """A module that is run, with `config` as its first message. `end` it; it ends by itself where this one dies.

    Who is forgotten ends too: `subprocess` would keep it, pipes and all, for as long as it runs.
    """

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
        assert self.process.stdin is not None and self.process.stdout is not None
        self._input, self._output = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._end = weakref.finalize(self, _end, self.process, self._errors)
        self._end.atexit = False
        os.set_blocking(self._input, False)
        self._unsent = bytearray()
        self._unpacker = Unpacker()
        self.send(config)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def send(self, message: Any) -> None:
        """What it does not take at once goes out while `receive` waits: who reads nothing is not waited for here."""
        self._unsent += packed(message)
        self._write()

    def receive(self, deadline: float) -> bytes | None:
        """What the child says; nothing where it has died; None where it says nothing until then, by the monotonic
        clock."""
        while True:
            poll = select.poll()
            poll.register(self._output, select.POLLIN)
            if self._unsent:
                poll.register(self._input, select.POLLOUT)
            ready = {found for found, _ in poll.poll(1_000 * max(0.0, deadline - time.monotonic()))}
            if self._output in ready:
                return os.read(self._output, READ_BYTES)
            if not ready:
                return None
            self._write()

    def unpack(self, data: bytes) -> list[Any]:
        """The messages that are whole by now; raises ValueError or RecursionError where they are none."""
        return self._unpacker.feed(data)

    def how_it_died(self) -> str:
        """The name of a signal, or an exit code."""
        try:
            code = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return "it answers no more"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def end(self) -> None:
        self._end()

    def _write(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._input, self._unsent)]
        except BlockingIOError:
            return
        except OSError:  # it has died: reading will tell how
            self._unsent.clear()


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            pipe.close()  # type: ignore[union-attr]
    process.kill()
    process.wait()
    errors.close()
