"""What is slow costs the others little, whatever it claims; and what it had read when its time ran out is kept."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.flow.derive import batch_budget
from headwater.flow.derive.sandbox import BatchBudget, Sandbox, job

POINTER = {"path": "x", "size": 1, "content_type": "audio/wav", "checksum": ""}
STEPS = ("fine", "hang", "never_enough", "reads_and_hangs", "reads_and_crashes", "on_the_phone", "slowly", "confused")
LIMITS = {"limits.step_seconds": 1.0, "limits.object_seconds": 4.0, "limits.realtime_factor": 1.0}


def config(**settings: Any) -> dict[str, Any]:
    steps = {name: f"faulty_steps:{name}" for name in STEPS}
    return {"steps": {**steps, "probe": "faulty_steps:hang"}, "fetch": "faulty_steps:fetch", "settings": settings}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    sandbox = Sandbox(config(**LIMITS))
    sandbox.derive(["fine"], "audio", POINTER)
    yield sandbox
    sandbox.close()


def jobs_of(*steps: str, path: str = "x") -> list[dict[str, Any]]:
    return [job([step], "audio", {**POINTER, "path": path}) for step in steps]


def test_no_object_earns_more_time_than_the_operator_gives_it(sandbox: Sandbox) -> None:
    started = time.monotonic()
    ((reason, detail),) = (answer["fault"] for answer in sandbox.derive(["never_enough"], "audio", POINTER).values())
    assert reason == "TIMEOUT" and "limits.object_seconds, 4 s" in detail
    assert time.monotonic() - started < 8


def test_what_the_batch_does_not_wait_for_is_set_aside_and_its_mates_are_done(sandbox: Sandbox) -> None:
    sandbox.derive(["fine"], "audio", POINTER)
    started = time.monotonic()
    results = sandbox.derive_many(
        jobs_of("fine", "never_enough", "fine", "never_enough", "fine"), budget=BatchBudget(patience=1)
    )
    assert [next(iter(result)) for result in results if "fault" not in next(iter(result.values()))] == ["fine"] * 3
    assert [results[slow]["never_enough"]["fault"][0] for slow in (1, 3)] == ["SLOW"] * 2
    assert time.monotonic() - started < 8


def test_patience_wears_out_with_each_that_was_set_aside() -> None:
    budget = BatchBudget(patience=60.0)
    waited = []
    for _ in range(6):
        waited.append(budget.patience)
        budget.halve_patience()
    assert waited == [60, 30, 15, 7.5, 5, 5]
    short = BatchBudget(patience=2.0)
    short.halve_patience()
    assert short.patience == 2.0


def test_many_that_hang_wear_the_patience_out_and_their_mates_are_served(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step has less time than the batch has patience, as it is by default: the first hang ends as one."""
    monkeypatch.setattr(batch_budget, "PATIENCE_SECONDS_MIN", 0.5)
    sandbox.derive(["fine"], "audio", POINTER)
    worn = BatchBudget(patience=1.5)
    results = sandbox.derive_many(jobs_of(*["hang", "fine"] * 6), budget=worn)
    assert [result["hang"]["fault"][0] for result in results[::2]] == ["TIMEOUT", *["SLOW"] * 5]
    assert [result["fine"] for result in results[1::2]] == [{"ok": {"size": 1}}] * 6
    assert worn.patience == 0.5


def test_of_an_object_that_is_set_aside_every_step_that_is_left_waits_and_answers_stay(sandbox: Sandbox) -> None:
    jobs = [job(["fine", "never_enough", "confused"], "audio", POINTER), job(["probe", "fine"], "audio", POINTER)]
    half, whole = sandbox.derive_many(jobs, budget=BatchBudget(patience=0.5))
    assert half["fine"] == {"ok": {"size": 1}}
    assert [half[step]["fault"][0] for step in ("never_enough", "confused")] == ["SLOW", "SLOW"]
    assert {step: answer["fault"][0] for step, answer in whole.items()} == {"probe": "SLOW"}


def test_a_call_to_another_machine_is_not_cut_off_by_a_batch_that_waits(sandbox: Sandbox) -> None:
    (result,) = sandbox.derive_many(jobs_of("on_the_phone"), budget=BatchBudget(patience=1))
    assert result == {"on_the_phone": {"ok": {"called": True}}}


def test_a_hang_does_not_take_along_what_others_have_in_hand(sandbox: Sandbox, tmp_path: Path) -> None:
    """Their calls may be paid for: each is begun once."""
    begun = tmp_path / "begun"
    jobs = [*jobs_of("hang"), *jobs_of("slowly", path=str(begun)), *jobs_of("fine", "fine")]
    results = sandbox.derive_many(jobs, threads=2)
    assert results[0]["hang"]["fault"][0] == "TIMEOUT"
    assert [next(iter(result.values())).get("ok") for result in results[1:]] == [{"slowly": True}, *[{"size": 1}] * 2]
    assert begun.read_text() == "begun\n"


def test_what_was_read_before_the_time_ran_out_is_the_answer_with_a_note(sandbox: Sandbox) -> None:
    answer = sandbox.derive(["reads_and_hangs", "fine"], "audio", POINTER)
    assert answer["reads_and_hangs"]["ok"] == {"pages": 3}
    reason, detail = answer["reads_and_hangs"]["note"]
    assert reason == "PARTIAL" and "limits.step_seconds" in detail and answer["fine"] == {"ok": {"size": 1}}


def test_what_was_read_before_a_crash_is_the_answer_with_a_note(sandbox: Sandbox) -> None:
    (answer,) = sandbox.derive(["reads_and_crashes"], "audio", POINTER).values()
    assert answer["ok"] == {"pages": 1} and "SIGSEGV" in answer["note"][1]
