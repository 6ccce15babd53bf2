"""Raw keys: whatever a caller sends, nothing is ever named, written or read outside the root."""

import os
import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.domain.keys import PART_BYTES_MAX, chat_key, encode_part, raw_key
from headwater.domain.modality import Modality
from headwater.errors import InvalidRequest
from headwater.storage.raw.directory_store import DirectoryRawStore

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOSTILE = [
    "../../etc/passwd", "..%2f", "..", ".", "", "/", "/etc/passwd", "a\x00b", "CON", "a" * 4096, "😀", "e\u0301",
    "\u00e9", ".incoming", "a\\b", "%2e%2e", "a b", "\u202egnp.exe", "~root", "$HOME", "a\nb", "\ud800", "-rf", "?",
]  # fmt: skip
parts = st.one_of(st.text(max_size=300), st.sampled_from(HOSTILE))


@given(customer=parts, name=parts, modality=st.sampled_from(Modality))
@example(customer="..", name="passwd", modality=Modality.AUDIO)
def test_a_key_is_refused_or_stays_below_the_root(customer: str, name: str, modality: Modality) -> None:
    try:
        key = raw_key(modality, customer, NOON, name)
    except InvalidRequest:
        return
    assert os.path.normpath(os.path.join("/store", key)) == f"/store/{key}"
    assert key.isascii()
    assert key.isprintable()
    assert len(key.split("/")) == 4


@given(first=parts, second=parts)
def test_two_names_never_share_a_key(first: str, second: str) -> None:
    try:
        same = encode_part(first, "name") == encode_part(second, "name")
    except InvalidRequest:
        return
    assert same == (first == second)


@given(part=parts)
def test_a_part_is_short_enough_for_every_file_system(part: str) -> None:
    try:
        assert len(encode_part(part, "name")) <= PART_BYTES_MAX
    except InvalidRequest as refusal:
        assert part != "plain"
        assert "name" in str(refusal)


@pytest.mark.parametrize(
    "part", ["../../etc/passwd", "..", ".", "", "/abs", "a\x00b", "a\nb", "a" * 4096, "e\u0301", "\ud800"]
)
def test_what_cannot_be_named_safely_is_refused(part: str) -> None:
    with pytest.raises(InvalidRequest):
        raw_key(Modality.AUDIO, part, NOON, "a.wav")
    with pytest.raises(InvalidRequest):
        raw_key(Modality.AUDIO, "acme", NOON, part)
    with pytest.raises(InvalidRequest):
        chat_key("acme", part)


def test_spellings_that_look_alike_are_never_two_customers() -> None:
    for composed in ("é", "ñandú", "Å"):
        assert encode_part(unicodedata.normalize("NFC", composed), "customer")
        with pytest.raises(InvalidRequest):
            encode_part(unicodedata.normalize("NFD", composed), "customer")


@settings(max_examples=60, deadline=None)
@given(customer=parts, name=parts)
@example(customer="~root", name="..%2f")
@example(customer="%2e%2e", name=".incoming")
def test_whatever_is_stored_lands_inside_the_root_and_is_found_again(customer: str, name: str) -> None:
    try:
        key = raw_key(Modality.AUDIO, customer, NOON, name)
    except InvalidRequest:
        return
    with TemporaryDirectory() as scratch:
        store = DirectoryRawStore(Path(scratch) / "lake" / "raw")
        pointer = store.put_bytes(key, b"abc", "audio/wav")
        files = [path for path in Path(scratch).rglob("*") if path.is_file()]
        assert files == [store.root / key]
        assert store.get(pointer) == b"abc"
        assert [found.path for found in store.list()] == [key]
