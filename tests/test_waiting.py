"""No test guesses how long something takes: it waits for a sign."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SLEEP = re.compile(r"\btime\.sleep\(|\bimport sleep\b|(?<![.\w])sleep\(\d")
# Stand-ins that are slow, or never come back: that is what is tested.
SLOW = {
    "bad_models.py": "models",
    "cheap_models.py": "models",
    "faulty_steps.py": "decoders",
    "endpoint_server.py": "an endpoint",
    "stack/wire.py": "a network",
    "stack/test_s3_fetch.py": "a store",
    "stack/test_stack.py": "a task of a job, which Spark cannot give to a worker that is taken",
}


def test_only_the_helper_sleeps_and_stand_ins_that_are_slow() -> None:
    files = {str(path.relative_to(TESTS)): path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")}
    sleeping = {name for name, text in files.items() if SLEEP.search(text)} - {Path(__file__).name}
    assert sleeping == {"waiting.py", *SLOW}, "wait for a sign by waiting.wait_until; time that must pass: let_pass"


@pytest.mark.parametrize("line", ["    time.sleep(0.5)", "from time import sleep", 'x = "import time; time.sleep(60)"'])
def test_a_sleep_is_noticed(line: str) -> None:
    assert SLEEP.search(line)
