"""Meta: what may be said of an object beside its bytes, and the facts that it is found by."""

import json
from typing import Any

import pytest

from headwater.domain.meta import META_BYTES_MAX, facts_of, meta_to_json, parse_fact, require_meta
from headwater.errors import InvalidRequest


def test_facts_are_words_and_inner_keys_are_joined_by_dots() -> None:
    meta = {"channel": "phone", "n": 5, "vip": True, "none": None, "account": {"tier": "gold"}, "tags": ["a", "b", "a"]}
    assert facts_of(meta_to_json(meta)) == [
        "account.tier=gold", "channel=phone", "n=5", "tags=a", "tags=b", "vip=true",
    ]  # fmt: skip
    assert facts_of(None) == facts_of("{}") == []


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ("phone", "must be a JSON object"),
        ({"k" * 101: 1}, "1 to 100 letters"),
        ({"": 1}, "1 to 100 letters"),
        ({1: 1}, "1 to 100 letters"),
        ({"a": {"b": {"": 1}}}, "1 to 100 letters"),
        ({"a": float("nan")}, "no JSON"),
        ({"a": object()}, "no JSON"),
        ({"a": "x\udc00"}, "no JSON"),
        ({"a": "x" * META_BYTES_MAX}, "bytes"),
        ({"a": [[[[[[[["deep"]]]]]]]]}, "levels deep"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(meta: Any, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        require_meta(meta)


def test_what_is_kept_is_what_was_given() -> None:
    meta = {"b": 1, "a": [1.5, None, {"c": "é"}]}
    assert require_meta(meta) == meta
    assert meta_to_json(meta) == '{"a":[1.5,null,{"c":"é"}],"b":1}'
    assert json.loads(meta_to_json(meta)) == meta
    assert require_meta(None) is None and require_meta({}) is None


def test_a_fact_is_a_key_and_a_value() -> None:
    assert parse_fact("channel=phone") == ("channel", "phone")
    assert parse_fact("formula=a=b") == ("formula", "a=b")
    assert parse_fact("empty=") == ("empty", "")
    for bad in ("channel", "=phone", " =x"):
        with pytest.raises(InvalidRequest, match="key=value"):
            parse_fact(bad)
