"""What a model answers is judged before anything is done with it: what passes, every table takes."""

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.domain.locator import Locator, Segment
from headwater.domain.tables import EMBEDDINGS, METADATA, TRANSCRIPTS
from headwater.errors import DataFault, Unavailable
from headwater.flow.derive.outcome import SCHEMA, checked_result, derived_row
from headwater.flow.derive.step import Effort, said_result
from headwater.flow.derive.work import PlannedStep
from headwater.flow.models.answers import checked_answers, checked_embedded, checked_said
from headwater.flow.models.loaded import GuardedModel
from headwater.flow.models.port import Embedded, ModelCard, Said

SPEECH = ModelCard("speech", "1", accepts="speech", produces="text", price=0.01, price_unit="1k_tokens")
VECTORS = ModelCard("vectors", "1", accepts="text", produces="vector", parameters={"dimension": 3})
AT = datetime(2026, 3, 1, tzinfo=UTC)
ROW = {
    "event_id": "e",
    "object_id": "o",
    "customer": "c",
    "meta": None,
    "thread": None,
    "log_partition": 0,
    "log_offset": 0,
    "modality": "audio",
    "occurred_at": AT,
    "seq": 0,
    "attempts": 0,
    "pointer": {"path": "o", "size": 1, "checksum": "0" * 64, "content_type": None},
}


class Evil:
    """Whoever looks at it is sorry."""

    def __getattribute__(self, name: str) -> Any:
        raise ValueError("\ud800 do not look at me")


def said(**changes: Any) -> Any:
    return Said(**{"text": "hello", "segments": (), **changes})


def placed(**place: Any) -> Any:
    return said(segments=(Segment("hello", Locator(**place)),))


NOT_NUMBERS = [None, "5", True, [], {}, 1j, object(), Evil(), np.array([1, 2]), np.bool_(True)]
NO_COUNTS = [*NOT_NUMBERS, -1, 10**30, 10**5000, 2**63, math.nan, math.inf, -math.inf, np.float32("nan")]
NO_TEXTS = [None, 5, b"bytes", ["text"], Evil(), "\ud800", "half \udc00 of it", np.float64(1)]


BAD_ANSWERS = [
    *[None, "hello", b"hello", {"text": "hello"}, ("hello",), 5, Evil(), np.zeros(3)],
    *[said(text=text) for text in [*NO_TEXTS, "x" * 20_000_001]],
    *[said(language=text) for text in [*NO_TEXTS[1:], "x" * 65]],
    *[said(confidence=number) for number in [*NOT_NUMBERS[1:], -0.1, 1.01, math.nan, math.inf, 10**400]],
    *[said(tokens=number) for number in NO_COUNTS],
    *[said(attempts=number) for number in NO_COUNTS],
    *[said(segments=parts) for parts in [None, "text", 5, {}, iter([]), [None], ["text"], [{"text": "x"}], [Evil()]]],
    *[said(segments=[Segment(text)]) for text in NO_TEXTS],
    said(segments=[Segment("x", None)]),  # type: ignore[arg-type]
    *[placed(start_ms=0, end_ms=number) for number in [*NO_COUNTS[1:], int(1e20), 1e17]],
    placed(start_ms=5, end_ms=4),
    *[placed(page=number) for number in [*NO_COUNTS[1:], 2**31]],
    *[placed(frame_ms=number) for number in NO_COUNTS[1:]],
    *[placed(box=box) for box in [(), (1, 2, 3), (1, 2, 3, 4, 5), 5, "1234", (0, 0, math.nan, 1), (0, 0, 1e300, 1)]],
]


# Not as parameters: pytest looks at those, and Evil does not like it.
def test_an_answer_that_no_table_takes_is_one_bad_output() -> None:
    for number, answer in enumerate(BAD_ANSWERS):
        with pytest.raises(DataFault) as fault:
            checked_answers([answer], 1, SPEECH)
            pytest.fail(f"number {number} passed")
        assert fault.value.reason == "BAD_OUTPUT"
        assert fault.value.detail.encode().decode() and len(fault.value.detail) < 500


BAD_VECTORS = [
    None,
    5,
    "123",
    [],
    [1, 2],
    [1, 2, 3, 4],
    [[1, 2, 3]],
    [1, 2, None],
    ["1", "2", "3"],
    [1, 2, math.nan],
    [1, 2, 1e300],
    [1, 2, 10**30],
    [True, False, True],
    [1j, 2, 3],
    {1: 2},
    Evil(),
    [1, [2], 3],
    np.zeros(0),
    b"123",
]


def test_a_vector_that_would_poison_an_index_is_one_bad_output() -> None:
    for number, vector in enumerate(BAD_VECTORS):
        for answer in (vector, Embedded(vector)):
            with pytest.raises(DataFault, match="BAD_OUTPUT"):
                checked_embedded(answer, 3)
                pytest.fail(f"number {number} passed")


def test_there_is_one_answer_for_each_input() -> None:
    bad: list[Any] = [None, "ab", b"ab", {}, 5, [], [said()] * 3, Evil()]
    for number, answers in enumerate(bad):
        with pytest.raises(DataFault, match="BAD_OUTPUT"):
            checked_answers(answers, 2, SPEECH)
            pytest.fail(f"number {number} passed")


def test_numbers_of_other_libraries_become_plain_ones_and_segments_stand_in_the_order_of_their_times() -> None:
    late = Segment("late", Locator(start_ms=np.int64(900), end_ms=np.float32(1000.5), box=np.array([1, 2, 3, 4.5])))  # type: ignore[arg-type]
    early = Segment(np.str_("early"), Locator(start_ms=100))
    answer = Said("x", None, np.float32(0.5), [late, early], np.int32(7), np.uint8(1))  # type: ignore[arg-type]
    found = checked_said(answer)
    assert [part.text for part in found.segments] == ["early", "late"]
    assert found.segments[1].locator == Locator(900, 1000, None, None, (1.0, 2.0, 3.0, 4.5))
    assert json.loads(json.dumps(found.segments[1].to_dict()))["end_ms"] == 1000
    assert (found.confidence, found.tokens, found.attempts) == (0.5, 7, 1)
    assert [type(value) for value in (found.text, found.tokens, found.confidence)] == [str, int, float]
    listed = checked_answers(iter(np.eye(3, dtype=np.float64)), 3, VECTORS)
    assert [one.vector.dtype for one in listed] == [np.float32] * 3


def test_a_text_or_a_time_beyond_what_the_model_was_given_is_one_bad_output() -> None:
    second = Effort(0.1, audio_seconds=1.0)
    assert said_result(placed(start_ms=0, end_ms=30_000), SPEECH, second)["segments"]
    for answer in (
        placed(start_ms=0, end_ms=62_000),
        said(text="x" * 3_000),
        said(segments=[Segment("x" * 1_500), Segment("x" * 1_500)]),
    ):
        with pytest.raises(DataFault, match="BAD_OUTPUT"):
            said_result(answer, SPEECH, second)
    with pytest.raises(DataFault, match="cost"):
        said_result(
            said(tokens=10**12), ModelCard("m", "1", "speech", "text", price=1e300, price_unit="1k_tokens"), second
        )


class Strange:
    """A model that raises what it is told."""

    card = SPEECH

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def load(self) -> None:
        pass

    def run(self, batch: Any) -> Iterator[Said]:
        yield from ()
        raise self.error


def test_what_a_model_raises_costs_a_row_unless_it_says_that_it_is_down() -> None:
    for error in (ValueError("\ud800"), OSError(5, "x"), StopIteration(), RecursionError(), NotImplementedError()):
        with pytest.raises(DataFault) as fault:
            GuardedModel(Strange(error)).run(["x"])
        assert fault.value.detail.encode()
    with pytest.raises(Unavailable):
        GuardedModel(Strange(Unavailable("not now"))).run(["x"])


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters()),
    st.binary(max_size=5),
    st.sampled_from([10**30, -1, 2**63, 2**31, "\ud800", math.nan, 1e17, int(1e20)]),
)
NESTED = st.recursive(
    JUNK, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
SEGMENT = st.fixed_dictionaries(
    {"text": JUNK}, optional=dict.fromkeys(("start_ms", "end_ms", "page", "frame_ms", "box"), NESTED)
)
COLUMNS = {
    TRANSCRIPTS.name: st.fixed_dictionaries(
        {"text": st.just("hello") | JUNK},
        optional={
            "segments": st.lists(SEGMENT, max_size=3) | NESTED,
            **dict.fromkeys(
                (
                    "language",
                    "confidence",
                    "tokens",
                    "attempts",
                    "cost",
                    "model_seconds",
                    "customer",
                    "event_id",
                    "else",
                ),
                NESTED,
            ),
        },
    ),
    METADATA.name: st.dictionaries(
        st.sampled_from(["duration_ms", "width", "pages", "codec", "channels", "object_id"]), NESTED
    ),
    EMBEDDINGS.name: st.fixed_dictionaries(
        {"vector": st.lists(st.floats(-1, 1), min_size=3, max_size=3) | NESTED},
        optional={"tokens": NESTED, "cost": NESTED, "attempts": NESTED},
    ),
}


@pytest.mark.parametrize("table", COLUMNS)
@settings(deadline=None)  # the first one imports half of Arrow
@given(data=st.data())
def test_whatever_a_child_says_or_the_memo_kept_is_refused_or_committed(table: str, data: st.DataObject) -> None:
    step = PlannedStep("s", table, "m", "m 1", "f", "p", "models.s", True, False, 1, dimension=3)
    result = data.draw(NESTED | COLUMNS[table])
    try:
        found = checked_result(result, step)
    except DataFault as fault:
        assert fault.reason == "BAD_OUTPUT" and fault.detail.encode()
        return
    if found is None:
        assert result is None
        return
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    row = derived_row(ROW, step, found, AT, remembered=False)
    (kept,) = pa.RecordBatch.from_pylist([row], schema=SCHEMA).to_pylist()
    assert (kept["customer"], kept["event_id"], kept["object_id"]) == ("c", "e", "o"), (
        "an answer does not tell whose it is"
    )
