"""A ref is what its form says, whatever a table has; what it prints is read as the same ref."""

import pickle
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.domain.ref import Ref
from headwater.errors import InvalidRequest

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
IDS = st.integers(0, 2**63 - 1)
TIMES = st.datetimes(timezones=st.just(UTC))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("4711", Ref(snapshot_id=4711)),
        ("  4711 ", Ref(snapshot_id=4711)),
        ("snapshot:4711", Ref(snapshot_id=4711)),
        ("20260302", Ref(snapshot_id=20260302)),
        ("tag:4711", Ref(name="4711")),
        ("2026-03-02", Ref(at=datetime(2026, 3, 2, tzinfo=UTC))),
        ("2026-03-02T12:00:00Z", Ref(at=NOON)),
        ("2026-03-02 12:00", Ref(at=NOON)),
        ("2026-03-02T13:00+01:00", Ref(at=NOON)),
        ("time:2026-03-02T12", Ref(at=NOON)),
        ("time:20260302T120000Z", Ref(at=NOON)),
        ("tag:2026-03-02", Ref(name="2026-03-02")),
        ("2026-03-02-release", Ref(name="2026-03-02-release")),
        ("2026-03-02Theory", Ref(name="2026-03-02Theory")),
        ("main", Ref(name="main")),
        ("-1", Ref(name="-1")),
        ("١٢", Ref(name="١٢")),
        ("prod:v2", Ref(name="prod:v2")),
        ("tag:tag:x", Ref(name="tag:x")),
        ("tag: x ", Ref(name=" x ")),
    ],
)
def test_what_a_person_writes_is_told_apart_by_its_form(written: str, meant: Ref) -> None:
    assert Ref.parse(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "", "  ", "tag:", "time:", "time:yesterday", "snapshot:", "snapshot:main", "snapshot:-1", "2026-02-30",
        "2026-03-02T99:00", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", str(2**63), "9" * 5_000,
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(written: str) -> None:
    with pytest.raises(InvalidRequest, match=r"\w+"):
        Ref.parse(written)


def test_a_date_that_no_calendar_has_tells_how_a_tag_of_that_name_is_written() -> None:
    with pytest.raises(InvalidRequest, match=r"tag:2026-02-30\.$"):
        Ref.parse("2026-02-30")


@given(IDS)
def test_digits_are_a_snapshot_and_come_back(snapshot_id: int) -> None:
    assert Ref.parse(str(snapshot_id)) == Ref(snapshot_id=snapshot_id) == Ref.of(snapshot_id)
    assert Ref.parse(f"snapshot:{snapshot_id}") == Ref.parse(str(Ref(snapshot_id=snapshot_id)))


@given(st.text(min_size=1))
@example("4711")
@example("2026-03-02")
@example("time:2026-03-02")
@example("tag:")
@example(" x")
@example("x\x1f")
def test_a_tag_of_any_name_can_be_named_and_is_printed_so_that_it_is_read_again(name: str) -> None:
    assert Ref.parse(f"tag:{name}") == Ref(name=name)
    assert Ref.parse(str(Ref(name=name))) == Ref(name=name)


@given(TIMES)
def test_a_time_comes_back_to_the_microsecond_and_is_cut_to_iceberg_s_milliseconds(moment: datetime) -> None:
    ref = Ref(at=moment)
    assert Ref.parse(str(ref)) == ref == Ref.of(moment)
    assert ref.at_ms is not None
    kept = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ref.at_ms)
    assert timedelta(0) <= moment - kept < timedelta(milliseconds=1)


@given(TIMES.filter(lambda moment: 1 < moment.year < 9999), st.integers(-14 * 60, 14 * 60))
def test_the_same_moment_is_the_same_ref_in_every_zone(moment: datetime, minutes: int) -> None:
    there = moment.astimezone(timezone(timedelta(minutes=minutes)))
    assert Ref.of(there) == Ref.parse(there.isoformat()) == Ref.of(moment)


@given(st.text())
def test_any_text_is_a_ref_or_is_refused_in_a_sentence(text: str) -> None:
    try:
        ref = Ref.parse(text)
    except InvalidRequest as refused:
        assert str(refused)
    else:
        assert Ref.parse(str(ref)) == ref


@given(st.from_regex(r"[0-9T:. +Z-]{1,30}", fullmatch=True))
def test_what_looks_like_a_time_is_one_or_refused_or_plainly_a_name(text: str) -> None:
    try:
        ref = Ref.parse(text)
    except InvalidRequest:
        return
    assert Ref.parse(str(ref)) == ref


def test_python_s_own_values_are_refs() -> None:
    assert Ref.of(date(2026, 3, 2)) == Ref.parse("2026-03-02")
    assert Ref.of(NOON.replace(tzinfo=None)) == Ref(at=NOON), "without a zone it is UTC"
    assert Ref.of(Ref(name="main")) == Ref.of("main")
    assert pickle.loads(pickle.dumps(Ref(at=NOON))) == Ref(at=NOON)
    for wrong in (True, 1.5, None, b"main", -1):
        with pytest.raises(InvalidRequest):
            Ref.of(wrong)  # type: ignore[arg-type]


def test_a_ref_is_exactly_one_of_the_three() -> None:
    for wrong in ({}, {"snapshot_id": 1, "name": "main"}, {"name": ""}, {"at": datetime(2026, 3, 2)}):  # noqa: DTZ001
        with pytest.raises(InvalidRequest):
            Ref(**wrong)  # type: ignore[arg-type]
