"""A crash, a hang or a glutton in a decoder costs one row, and the next one finds a sandbox that works."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from headwater import lake as lakes
from headwater.clock import utc_now
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.errors import ModelNotLoaded, Unavailable
from headwater.flow.derive.plan import plan_work
from headwater.flow.derive.sandbox import Sandbox, StepJob, job
from headwater.flow.models.loaded import models_of
from headwater.settings import load

STEPS = (
    "fine",
    "fault",
    "crash",
    "killed",
    "crash_once",
    "hang",
    "long_media",
    "greedy",
    "confused",
    "noisy",
    "pid",
    "unwell",
    "unloadable",
    "deadly_to_load",
)
POINTER = {"path": "x", "size": 1, "content_type": "audio/wav", "checksum": ""}


def config(**settings: Any) -> dict[str, Any]:
    steps = {name: f"faulty_steps:{name}" for name in STEPS}
    return {
        "steps": {**steps, "probe": "faulty_steps:fault", "threads": "faulty_steps:threads"},
        "fetch": "faulty_steps:fetch",
        "settings": {"limits.step_seconds": 1.0, "limits.realtime_factor": 1.0, "limits.child_mb": 256, **settings},
    }


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    sandbox = Sandbox(config())
    yield sandbox
    sandbox.close()


def derive(sandbox: Sandbox, *steps: str, path: str = "x") -> dict[str, dict[str, Any]]:
    return sandbox.derive(steps, "audio", {**POINTER, "path": path})


def test_a_crash_is_tried_again_then_believed_and_other_steps_keep_their_answers(sandbox: Sandbox) -> None:
    results = derive(sandbox, "fine", "crash", "noisy")
    assert results["fine"] == {"ok": {"size": 1}} and results["noisy"] == {"ok": {"noise": True}}
    assert results["crash"]["fault"][0] == "CRASHED" and "SIGSEGV" in results["crash"]["fault"][1]


def test_a_child_killed_from_outside_is_a_crash(sandbox: Sandbox) -> None:
    reason, detail = derive(sandbox, "killed")["killed"]["fault"]
    assert reason == "CRASHED" and "SIGKILL" in detail


def test_a_crash_that_does_not_repeat_costs_nothing(sandbox: Sandbox, tmp_path: Path) -> None:
    assert derive(sandbox, "crash_once", path=str(tmp_path / "mark")) == {"crash_once": {"ok": {"survived": True}}}


def test_batch_mates_of_a_crash_and_a_hang_all_succeed(sandbox: Sandbox) -> None:
    jobs = [job([step], "audio", POINTER) for step in ("fine", "crash", "fine", "hang", "fine", "fault", "fine")]
    results = sandbox.derive_many(jobs)
    assert [result["fine"]["ok"] for result in results[::2]] == [{"size": 1}] * 4
    assert [next(iter(result.values()))["fault"][0] for result in results[1::2]] == ["CRASHED", "TIMEOUT", "UNREADABLE"]


def test_a_hang_ends_at_its_deadline_and_later_steps_still_run(sandbox: Sandbox) -> None:
    derive(sandbox, "fine")
    started = time.monotonic()
    results = derive(sandbox, "hang", "fine")
    assert results["hang"]["fault"][0] == "TIMEOUT" and results["fine"] == {"ok": {"size": 1}}
    assert time.monotonic() - started < 6


def test_long_media_may_take_longer_than_a_step(sandbox: Sandbox) -> None:
    assert derive(sandbox, "long_media") == {"long_media": {"ok": {"heard": True}}}


def test_a_glutton_is_stopped_at_the_memory_limit(sandbox: Sandbox) -> None:
    results = derive(sandbox, "greedy", "fine")
    assert results["greedy"]["fault"][0] == "TOO_LARGE"
    assert derive(sandbox, "fine")["fine"] == {"ok": {"size": 1}}


def test_an_exception_of_foreign_code_is_the_rows_fault(sandbox: Sandbox) -> None:
    before = derive(sandbox, "pid")["pid"]["ok"]["pid"]
    assert derive(sandbox, "confused")["confused"]["fault"] == ("CRASHED", "ValueError: the model is confused")
    assert derive(sandbox, "pid")["pid"]["ok"]["pid"] == before


def test_a_model_that_does_not_answer_is_told_from_a_store_that_does_not(sandbox: Sandbox) -> None:
    assert derive(sandbox, "unwell")["unwell"]["fault"][0] == "MODEL_DOWN"
    with pytest.raises(Unavailable, match="raw store"):
        derive(sandbox, "fine", path="store-down")
    assert derive(sandbox, "fine") == {"fine": {"ok": {"size": 1}}}


def test_a_probe_that_faults_speaks_for_the_whole_object(sandbox: Sandbox) -> None:
    assert list(derive(sandbox, "probe", "fine")) == ["probe"]


def test_the_child_is_kept_and_pinned_to_one_thread(sandbox: Sandbox) -> None:
    first, second = (derive(sandbox, "pid")["pid"]["ok"]["pid"] for _ in range(2))
    assert first == second
    assert derive(sandbox, "threads")["threads"]["ok"] == {"threads": "1"}


def test_a_cheap_step_costs_well_under_a_millisecond(sandbox: Sandbox) -> None:
    jobs = [job(["fine"], "audio", POINTER)] * 64
    sandbox.derive_many(jobs)
    rounds = []
    for _ in range(10):
        started = time.perf_counter()
        sandbox.derive_many(jobs)
        rounds.append((time.perf_counter() - started) / len(jobs) * 1000)
    print(f"a cheap step in a batch of 64: {min(rounds):.3f} ms")
    assert min(rounds) < 0.3


def test_a_busy_child_dies_with_its_parent() -> None:
    code = "\n".join(
        [
            "import sys, threading",
            "from test_sandbox import config, derive",
            "from headwater.flow.derive.sandbox import Sandbox",
            "sandbox = Sandbox(config(**{'limits.step_seconds': 60}))",
            "derive(sandbox, 'fine')",
            "print(sandbox.pid, flush=True)",
            "derive(sandbox, 'hang')",
        ]
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert psutil.wait_procs([child], timeout=5)[1] == []


def test_a_child_whose_sandbox_is_forgotten_ends() -> None:
    sandbox = Sandbox(config())
    derive(sandbox, "fine")
    assert sandbox.pid is not None
    child = psutil.Process(sandbox.pid)
    del sandbox
    assert not child.is_running()


def test_a_child_that_cannot_start_says_why() -> None:
    sandbox = Sandbox({**config(), "fetch": "no.such:place"})
    with pytest.raises(Unavailable, match=r"no\.such"):
        derive(sandbox, "fine")


def test_a_standby_that_cannot_be_loaded_is_left_out_and_told_once(
    sandbox: Sandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody sees what it makes, so those that people see go on without it."""
    steps = [StepJob("fine", "fine"), StepJob("unloadable/1", "unloadable", standby=True), StepJob("noisy", "noisy")]
    for _ in range(2):
        results = sandbox.derive(steps, "audio", POINTER)
        assert results["fine"] == {"ok": {"size": 1}} and results["noisy"] == {"ok": {"noise": True}}
        reason, detail = results["unloadable/1"]["fault"]
        assert reason == "MODEL_DOWN" and "these are no weights" in detail
    assert capfd.readouterr().err.count("Traceback (most recent call last)") <= 2, "of one load: it is not tried again"


def test_only_a_standby_beside_an_active_model_is_planned_as_one(tmp_path: Path) -> None:
    lakes.init(tmp_path / "lake").close()
    settings = load(tmp_path / "lake")
    card = models_of(settings).card("models.transcribe")
    known = KnownModel(
        "transcribe", settings.text("models.transcribe"), card.label, card.fingerprint, State.STANDBY, ""
    )
    active = replace(known, state=State.ACTIVE)
    for models, standby in (((known,), [False]), ((active,), [False])):
        work = plan_work(settings, ModelBook(models), now=utc_now())
        assert [step.standby for step in work.steps["audio"] if step.name == "transcribe"] == standby
    other = models_of(settings).chosen("models.transcribe", "pocketsphinx").card("models.transcribe")
    beside = KnownModel("transcribe", "pocketsphinx", other.label, other.fingerprint, State.STANDBY, "", replayed=True)
    work = plan_work(settings, ModelBook((active, beside)), now=utc_now())
    assert [step.standby for step in work.steps["audio"] if step.name == "transcribe"] == [False, True]


def test_a_model_that_cannot_be_loaded_is_no_objects_fault_and_its_traceback_is_kept(
    sandbox: Sandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelNotLoaded, match="UnloadableSpeech cannot be loaded: RuntimeError: these are no weights"):
        derive(sandbox, "fine", "unloadable")
    said = capfd.readouterr().err
    assert "Traceback" in said and "bad_models.py" in said and "these are no weights" in said
    with pytest.raises(ModelNotLoaded, match="ended its process while it was loaded: SIGSEGV"):
        derive(sandbox, "deadly_to_load")
    assert derive(sandbox, "fine")["fine"] == {"ok": {"size": 1}}
