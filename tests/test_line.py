"""Lines of the log: what is an event, what is not, and hashes that outlive the code that made them."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.domain.event import Event
from headwater.domain.event_fields import NAME_BYTES_MAX
from headwater.domain.event_problems import find_problems
from headwater.domain.line import PAYLOAD_LETTERS, Line, completed, message_path, unsound_line
from headwater.domain.line import read_line as read_bytes
from headwater.errors import InvalidRequest
from headwater.flow.land_text import text_event

PLACE = {"path": "chat/c/e", "offset": 0, "size": 5, "content_type": "text/plain", "checksum": "a" * 64}
EVENT: dict[str, Any] = {
    "event_id": "e",
    "modality": "chat",
    "customer": "c",
    "occurred_at": "2026-03-01T00:00:00.000Z",
    "pointer": PLACE,
    "text": "hello",
}
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
MESSAGE = {"event_id": "e", "customer": "c", "occurred_at": "2026-03-01T00:00:00.000Z", "text": "hello"}
# They lead out of the customer's folder, or could.
PATHS_OUT = [
    "", "chat/c/../victim/e", "chat/c/..", "../chat/c/e", "chat/./c/e", "chat/c/.", "chat//c/e", "chat/c//e", "chat/c/",
    "/chat/c/e", "./chat/c/e", "chat/c/e/../../victim/e", "..", ".", "/",
]  # fmt: skip
# Made by Spark's to_json and sha2 in lakes of format 1, whose ledgers hold them.
HASHES: list[tuple[dict[str, Any], str]] = [
    ({}, "d3a8bfb84d83300319a971f2f641d40d894779bff2da951463ba6ecd2ca3adde"),
    ({"text": "日本語"}, "b8b8d71e29c95eb3cfd5477c31511a273525086d3d35dcf1c8a8390a6119e278"),
    ({"text": "😀"}, "ab0850f630e547dc00704a61a97a099e5d6d92d36c1a573ff494e780c0fb0beb"),
    ({"text": "\x01\x0b\x0e\x1f\x7f"}, "ded28794b6e7d156e3d5b6b5e930ebdbb15c33da9bf064560ef00ed2a35d92f0"),
    ({"text": "\t\n\r\b\f"}, "de80d84350ab8bf87121088f4c9103d6642d8279f67e0934c20422244b3d85ab"),
    ({"text": 'a"b'}, "dcc709a7647dde49a4f3740549f0d476dade4a745062083c1ea306cc57c1e941"),
    ({"text": "back\\slash"}, "16840ae2bde546bfc538d43b915757eb37ebc5549463a11dd799ea4b8468a0c5"),
    ({"text": "\u2028\u2029"}, "3e427a331cad77bac09dc5ed463fa05bcaae65bd47b0e8dda3f6e9e22d7d21d5"),
    ({"text": "x\udc00y"}, "df24475d7b3069fea04416f995c6e6df2fef68979bf6200defd87f57a3e53aba"),
    ({"text": ""}, "e6783f1ef0f380e65aa229118fd127447cbfa9e4aba5efba133d0a0f54e2edf5"),
    ({"text": True}, "65ca26a9657efce1b405bfb67d2fa2a95b223bbb21f976ac988ec298ab469610"),
    ({"text": {"a": 1.5, "b": "é"}}, "2cf8f4f854246d5f24c34fedf26638d24980257925869ad7f6575f1222b2a5ce"),
    ({"customer": 5}, "8c3ddf02b7cc8ad9bf38fd478339a34902760015a293c7add59aa67a9651ffa7"),
    ({"customer": 5.5}, "2a8944bb6f8c31864c663dd7a54aac8d076b3bf1bf7ed957402d662ba1a75708"),
    ({"customer": 123456789.123}, "ce402f1f34718d1856e5edd0d79e10a85de3a60b35f6de98ad1687ff6b44ea86"),
    ({"event_id": 1e-7}, "659327a60e81b86bcb478b56991da278f7aacf3823ead9c316c0b5f54ad1c736"),
    ({"modality": "audio", "text": None}, "5bc786a759427e95d5a04d5d7984117b62ecce1553a343394e21ababe04616c2"),
]


def read_line(value: str | None) -> Line:
    return read_bytes(value if value is None else value.encode())


@pytest.mark.parametrize(("change", "content_hash"), HASHES)
def test_an_events_hash_is_the_one_that_lakes_already_keep(change: dict[str, Any], content_hash: str) -> None:
    event = {**EVENT, **change}
    again = {name: event[name] for name in reversed(event)} | {"more": [1.5], "occurred_at": "2026-03-02"}
    for sent in (event, again):
        assert read_line(json.dumps(sent)).content_hash == content_hash


@pytest.mark.parametrize(
    "change",
    [
        *({name: None} for name in EVENT if name != "pointer"),
        {"pointer": None, "modality": "audio", "text": None},
        *({"event_id": name} for name in ("", "nul\0", "x" * 1025, "é" * 513)),
        {"modality": "fax"},
        {"modality": "audio"},
        *({"occurred_at": time} for time in ("", "soon", "12:00", 5.5, 2**63, "2026-02-30")),
        *({"pointer": {**PLACE, "size": size}} for size in (-1, 2**63, 5.5, "5", True)),
        *({"pointer": {**PLACE, "size": None}, "modality": modality, "text": None} for modality in ("audio", "image")),
        *({"pointer": {**PLACE, "offset": offset}} for offset in (-1, 0.5, "0")),
        *({"pointer": {**PLACE, "checksum": checksum}} for checksum in ("a" * 63, "A" * 64, "a" * 64 + "\n", 5)),
        {"pointer": {**PLACE, "etag": "x" * 1025}},
        *({"pointer": {**PLACE, "path": path}} for path in PATHS_OUT),
        {"pointer": "chat/c/e"},
        *(
            {"meta": meta}
            for meta in ("phone", [1], {"k" * 101: 1}, {"": 1}, {"k": "x" * 16_400}, {"k": [[[[[[[[1]]]]]]]]})
        ),
        *({"thread": thread} for thread in ("", "x" * 1025)),
    ],
)
def test_what_later_stages_could_not_use_is_no_event(change: dict[str, Any]) -> None:
    value = json.dumps({**EVENT, **change})
    line = read_line(value)
    assert (line.sound, line.content_hash, line.checksum, line.payload) == (False, None, None, value[:PAYLOAD_LETTERS])
    assert line.reason == "BAD_EVENT"
    assert line.customer == {**EVENT, **change}["customer"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "{",
        "[]",
        "5",
        json.dumps([EVENT]),
        json.dumps(EVENT) * 2,
        "[" * 100_000,
        "9" * 5_000,
        '{"pointer": 1}',
    ],
)
def test_what_is_no_object_of_json_is_no_event(value: str | None) -> None:
    line = read_line(value)
    assert (line.sound, line.event_id, line.payload) == (False, None, value and value[:PAYLOAD_LETTERS])


def test_a_line_larger_than_a_log_takes_is_no_event_but_says_whose_it_was() -> None:
    value = json.dumps({**EVENT, "event_id": "x" * 5_000, "text": "é" * 500_001}, ensure_ascii=False)
    line = read_line(value)
    assert (line.sound, line.customer, line.text) == (False, "c", None)
    assert line.event_id == "x" * NAME_BYTES_MAX


def test_a_line_without_a_place_in_the_log_is_no_event_whatever_it_says() -> None:
    line = unsound_line(json.dumps(EVENT).encode())
    assert (line.sound, line.event_id) == (False, "e")


@unhurried
@given(text=st.text(st.characters(codec="utf-8")), at=st.datetimes(timezones=st.just(UTC)))
def test_an_event_is_read_as_it_was_written(text: str, at: datetime) -> None:
    event = text_event(f"said: {text}", "c", "e", at.replace(microsecond=0))
    line = read_line(event.to_json())
    assert (line.sound, line.event_id, line.customer, line.text) == (True, "e", "c", event.text)
    assert (line.path, line.size, line.checksum) == (event.object_id, event.pointer.size, event.pointer.checksum)
    assert line.occurred_at == event.occurred_at


@pytest.mark.parametrize(
    ("customer", "path"),
    [
        ("acme", "audio/acme/2026-03-01/a.wav"),
        ("acme", "calls/acme/a.wav"),
        ("acme", "chat/acme/a%2Fb"),
        ("a b", "audio/a%20b/2026-03-01/a.wav"),
        ("a b", "audio/a b/2026-03-01/a.wav"),
        ("a%20b", "audio/a%2520b/2026-03-01/a.wav"),
        ("a/b", "chat/a%2Fb/m1"),
        ("acme", "audio/acme/.../..a./b..wav"),
        ("müller@köln+=~", "chat/m%C3%BCller@k%C3%B6ln+=~/m1"),
        (5, "chat/5/m1"),
    ],
)
def test_the_second_part_of_a_path_says_whose_it_is_however_it_is_spelled(customer: Any, path: str) -> None:
    line = read_line(json.dumps({**EVENT, "customer": customer, "pointer": {**PLACE, "path": path}}))
    assert (line.sound, line.customer, line.reason) == (True, str(customer), None)


@pytest.mark.parametrize(
    ("customer", "path"),
    [
        ("thief", "audio/acme/2026-03-01/a.wav"),
        ("thief", "chat/acme/m1"),
        ("Acme", "audio/acme/2026-03-01/a.wav"),
        ("a%20b", "audio/a%20b/2026-03-01/a.wav"),
        ("a+b", "audio/a%20b/2026-03-01/a.wav"),
        ("acme", "audio/acme%2F..%2Fvictim/a.wav"),
        ("acme", "audio/ acme/a.wav"),
        ("acme", "acme/a.wav"),
        ("acme", "audio/acme"),
        ("acme", "acme"),
        ("audio", "/audio/acme/a.wav"[1:]),
    ],
)
def test_an_event_about_somebody_elses_path_is_refused_with_a_reason_of_its_own(customer: str, path: str) -> None:
    value = json.dumps({**EVENT, "customer": customer, "pointer": {**PLACE, "path": path}})
    line = read_line(value)
    assert (line.sound, line.reason, line.customer, line.path) == (False, "WRONG_CUSTOMER", customer, path)
    assert line.payload == value


@unhurried
@given(customer=st.text(min_size=1), event_id=st.text(min_size=1))
def test_what_we_store_for_a_customer_is_that_customers(customer: str, event_id: str) -> None:
    try:
        event = text_event("hello", customer, event_id, datetime(2026, 3, 1, tzinfo=UTC))
    except InvalidRequest:
        return
    assert read_line(event.to_json()).sound


LEAVES = st.none() | st.booleans() | st.floats() | st.integers() | st.text()
NAMES = st.sampled_from([*EVENT, *PLACE])


@unhurried
@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)))
def test_no_json_whatever_stops_the_reading(sent: Any) -> None:
    assert not read_line(json.dumps(sent)).sound


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"event_id": None}, "event_id: missing, needs a text"),
        ({"customer": ""}, "customer: empty, needs at least one letter"),
        ({"event_id": "é" * 513}, "event_id: 1,026 bytes, at most 1,024"),
        ({"customer": "c\0"}, 'customer: "c\\u0000" holds the character zero'),
        ({"modality": "fax"}, 'modality: "fax", needs one of audio, chat, document, image, video'),
        ({"occurred_at": "soon"}, 'occurred_at: "soon", needs a time: ISO 8601, such as 2026-01-31T09:30:00Z, or'
         " whole seconds since 1970"),
        ({"text": None}, "text: missing, needs the text of the message"),
        ({"modality": "audio"}, 'text: "hello", but only a chat message has a text'),
        ({"pointer": "chat/c/e"}, 'pointer: "chat/c/e", needs an object; only a chat message may come without'),
        ({"pointer": {**PLACE, "checksum": "a" * 63}}, "pointer.checksum: 63 hex digits, needs 64"),
        ({"pointer": {**PLACE, "size": -1}}, f"pointer.size: -1, needs a whole number from 0 to {2**63 - 1}"),
        ({"pointer": {**PLACE, "path": "chat/c/.."}},
         'pointer.path: "chat/c/.." begins or ends with a slash, or has an empty part, . or ..'),
        ({"pointer": {**PLACE, "path": "chat/d/e"}},
         'pointer.path: "chat/d/e" is of the customer "d", and customer says "c"'),
        ({"pointer": {**PLACE, "etag": "x" * 1025}}, "pointer.etag: 1,025 bytes, at most 1,024"),
        ({"event_id": "", "customer": ""}, "event_id: empty, needs at least one letter; customer: empty, needs at least"
         " one letter"),
    ],
)  # fmt: skip
def test_a_reason_names_the_field_what_it_has_and_what_it_needs(change: dict[str, Any], detail: str) -> None:
    assert read_line(json.dumps({**EVENT, **change})).detail == detail


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (None, "line: empty, needs an event as JSON"),
        (b"{", "line: no JSON: Expecting property name enclosed in double quotes, at letter 2"),
        (b"[1]", "line: a list, needs an object with the fields of an event"),
        (b"9" * 5_000, "line: no JSON that can be read: it is nested too deep, or holds a number of too many digits"),
        (b'{"text": "caf\xe9"}', "line: no UTF-8: byte 14 of 16 is 0xe9; \ufffd stands for what cannot be read"),
        (b"x" * 1_000_001, "line: 1,000,001 bytes, at most 1,000,000 travel in a log; line: no JSON: Expecting value,"
         " at letter 1"),
    ],
)  # fmt: skip
def test_a_line_that_has_no_fields_says_why(value: bytes | None, detail: str) -> None:
    line = read_bytes(value)
    assert (line.sound, line.reason, line.detail) == (False, "BAD_EVENT", detail)


def test_bytes_that_are_no_utf8_are_told_and_never_an_event_though_the_rest_is_one() -> None:
    value = json.dumps({**EVENT, "text": "café"}, ensure_ascii=False).encode("latin-1")
    line = read_bytes(value)
    assert (line.sound, line.event_id, line.customer) == (False, "e", "c")
    assert "0xe9" in (line.detail or "") and "caf\ufffd" in (line.payload or "")


def test_a_message_needs_four_fields_and_is_the_event_that_put_makes_of_the_same() -> None:
    line = read_line(json.dumps(MESSAGE))
    own = read_line(text_event("hello", "c", "e", datetime(2026, 3, 1, tzinfo=UTC)).to_json())
    assert line == own and line.sound and line.content_hash is not None
    given = read_line(json.dumps({**MESSAGE, "pointer": {"path": "chat/c/thread/e"}}))
    assert (given.sound, given.reason) == (False, "BAD_EVENT"), "with a pointer, it must say what it is"
    given = read_line(json.dumps({**MESSAGE, "modality": "chat", "pointer": {"path": "chat/c/thread/e"}}))
    assert (given.sound, given.path, given.checksum) == (True, "chat/c/thread/e", own.checksum)


@unhurried
@given(customer=st.text(min_size=1, max_size=60), event_id=st.text(min_size=1, max_size=300))
def test_any_id_of_any_customer_makes_a_message_a_path_of_that_customers(customer: str, event_id: str) -> None:
    line = read_line(json.dumps({**MESSAGE, "customer": customer, "event_id": event_id}))
    assert line.sound == ("\0" not in customer + event_id), line.detail
    if line.sound:
        assert line.path == message_path(line.customer or "", line.event_id or "")


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "event_id": LEAVES, "modality": st.sampled_from(["chat", "audio", "fax", None]), "customer": LEAVES,
        "occurred_at": st.sampled_from(["2026-03-01", "soon", 5, -1.5, None]), "text": st.none() | st.text(),
        "pointer": st.none() | st.text() | st.fixed_dictionaries({}, optional={
            "path": st.sampled_from(["chat/c/e", "chat/c/", "a/b", "chat/d/e", None]), "size": LEAVES,
            "checksum": st.sampled_from(["a" * 64, "A" * 64, "", None]), "offset": LEAVES, "etag": LEAVES,
        }),
    },
)  # fmt: skip


@unhurried
@given(change=FIELDS, base=st.sampled_from([EVENT, MESSAGE, {}]))
def test_a_line_is_an_event_if_and_only_if_no_field_is_to_blame(change: dict[str, Any], base: dict[str, Any]) -> None:
    value = json.dumps({**base, **change})
    line = read_line(value)
    assert (line.detail is None) == line.sound
    if not find_problems(completed(json.loads(value))):
        assert line.sound
    if not line.sound:
        assert line.detail


def test_meta_and_thread_are_content_whatever_the_order_of_their_keys() -> None:
    sent = {**EVENT, "meta": {"channel": "phone", "account": {"tier": "gold", "seats": 5}}, "thread": "t1"}
    line = read_line(json.dumps(sent))
    assert (line.sound, line.thread) == (True, "t1")
    assert line.meta == '{"account":{"seats":5,"tier":"gold"},"channel":"phone"}'
    turned = {**sent, "meta": {"account": {"seats": 5, "tier": "gold"}, "channel": "phone"}}
    assert read_line(json.dumps(turned)).content_hash == line.content_hash
    others = ({"meta": {"channel": "mail"}}, {"meta": {}}, {"meta": None}, {"thread": "t2"}, {"thread": None})
    hashes = {read_line(json.dumps({**sent, **other})).content_hash for other in others}
    assert len(hashes | {line.content_hash}) == 6 and None not in hashes
    assert read_line(json.dumps({**sent, "thread": 7})).thread == "7"


def test_an_event_with_meta_is_read_as_it_was_written() -> None:
    event = text_event("hello", "c", "e", datetime(2026, 3, 1, tzinfo=UTC))
    told = replace(event, meta={"b": "\x01\u2028", "a": [1, None, 2.5, True]}, thread="conversation 7")
    line = read_line(told.to_json())
    assert (line.sound, line.thread, json.loads(line.meta or "")) == (True, told.thread, told.meta)
    assert Event.from_dict(told.to_dict()) == told


def test_what_is_sent_beside_is_kept_in_the_order_of_its_keys_and_is_no_content() -> None:
    sent = {**EVENT, "shift": "night", "b": [1, {"z": None, "a": 2.5}], "pointer": {**PLACE, "bucket": "calls"}}
    line = read_line(json.dumps(sent))
    assert (line.sound, line.extra) == (
        True, '{"b":[1,{"a":2.5,"z":null}],"pointer":{"bucket":"calls"},"shift":"night"}',
    )  # fmt: skip
    plain = read_line(json.dumps(EVENT))
    assert (plain.extra, plain.content_hash) == (None, line.content_hash)
    # A number where a word belongs, and a message that is completed, keep theirs too.
    assert read_line(json.dumps({**EVENT, "thread": 7, "shift": "day"})).extra == '{"shift":"day"}'
    assert read_line(json.dumps({**MESSAGE, "shift": "é"})).extra == '{"shift":"é"}'


def test_what_is_no_json_is_kept_as_words_where_nothing_goes_by_it() -> None:
    value = json.dumps({**EVENT, "scores": [float("nan"), float("-inf"), 0.5]})
    assert read_line(value).extra == '{"scores":["NaN","-Infinity",0.5]}'
    assert read_line(json.dumps({**EVENT, "name": "x\ud83dy"})).extra == '{"name":"x?y"}'


@unhurried
@given(st.dictionaries(st.text(), st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner))))
def test_nothing_that_is_sent_beside_makes_an_event_none(beside: dict[str, Any]) -> None:
    beside = {name: value for name, value in beside.items() if name not in EVENT and name not in {"meta", "thread"}}
    line = read_line(json.dumps({**EVENT, **beside}))
    assert line.sound and (line.extra is None) == (not beside)
    assert line.extra is None or list(json.loads(line.extra)) == sorted(beside)


def test_what_is_nested_too_deep_is_told_or_kept() -> None:
    deep = json.dumps(EVENT)[:-1] + ', "deep": ' + "[" * 50_000 + "]" * 50_000 + "}"
    line = read_line(deep)
    assert line.sound or "nested too deep" in (line.detail or "")
