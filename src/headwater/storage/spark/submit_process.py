"""The process of spark-submit: its driver gets our signals, and its exit code is ours.

Spark-submit is a JVM that starts the driver, a Python, and on a signal dies without a word to it: the driver would go
on, alone, with the lake's lease in its hands. So a signal goes to the driver, which stops as `headwater run` does; the
JVM ends when the driver has ended.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PROGRAM: Final = b"/submitted.py"


def run_submitted(line: Sequence[str], environment: Mapping[str, str]) -> int:
    """Returns the exit code when spark-submit has ended, and nothing of it is left."""
    # A group of its own: Ctrl-C reaches all of a terminal's group at once, and the JVM would die under the driver.
    with subprocess.Popen(line, env=environment, stdin=subprocess.DEVNULL, process_group=0) as submit:

        def pass_on(number: int, _frame: FrameType | None) -> None:
            with suppress(ProcessLookupError):
                if driver := _driver(submit.pid):
                    os.kill(driver, _signal_for_driver(number))
                else:
                    os.killpg(submit.pid, signal.SIGTERM)

        before = {number: signal.signal(number, pass_on) for number in _SIGNALS}
        try:
            code = submit.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            # A driver whose JVM was killed, or that was just being started.
            with suppress(ProcessLookupError):
                os.killpg(submit.pid, signal.SIGTERM)
    return code if code >= 0 else 128 - code


def _signal_for_driver(number: int) -> int:
    """A terminal that is closed asks for the same as whoever asks to stop; the driver knows no SIGHUP."""
    return signal.SIGTERM if number == signal.SIGHUP else number


def _driver(submit: int) -> int | None:
    """The Python that spark-submit started; None while there is none, and where the cluster runs it."""
    for process in Path("/proc").glob("[0-9]*"):
        # What ended while it was looked at.
        with suppress(OSError, IndexError):
            # The command's name stands in brackets and may hold blanks and brackets itself.
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            # spark-submit's own processes name the program too, further on in their lines.
            if parent == submit and (process / "cmdline").read_bytes().split(b"\0")[1].endswith(_PROGRAM):
                return int(process.name)
    return None
