"""Raw objects on S3: the same promises, and what only a server has: versions, schemes, throttling, keys."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from behaviour_raw_store import *  # noqa: F403
from behaviour_raw_store import KEY, LARGE, PART_BYTES, put_small, put_streamed
from own_parts import Forwarder, forwarding

from headwater.errors import Conflict, InvalidRequest
from headwater.settings import Settings, resolve
from headwater.storage.io.s3 import S3Target
from headwater.storage.raw.s3_store import S3RawStore
from headwater.storage.raw.store import RawStore, open_raw_store


@pytest.fixture
def target(s3_settings: Settings, bucket: str) -> S3Target:
    return S3Target.from_settings(f"s3://{bucket}/some/prefix", s3_settings)


@pytest.fixture
def store(target: S3Target) -> RawStore:
    return S3RawStore(target, PART_BYTES)


def test_s3_s3a_and_s3n_are_one_location(s3_settings: Settings, bucket: str) -> None:
    stores = [open_raw_store(f"{scheme}://{bucket}/p", s3_settings) for scheme in ("s3", "s3a", "s3n")]
    pointers = [store.put_bytes(KEY, b"abc", "audio/wav") for store in stores]
    assert len(set(pointers)) == 1
    with pytest.raises(Conflict):
        stores[2].put_bytes(KEY, b"other", "audio/wav")


@pytest.mark.parametrize("data", [b"abc", LARGE])
def test_where_the_bucket_keeps_versions_the_pointer_names_one(
    store: RawStore, s3_client: Any, bucket: str, data: bytes
) -> None:
    s3_client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    pointer = put_streamed(store, KEY, data)
    assert pointer.version_id
    assert put_streamed(store, KEY, data).version_id == pointer.version_id
    with pytest.raises(Conflict):
        put_streamed(store, KEY, data + b"!")
    assert store.get(pointer) == data
    assert len(s3_client.list_object_versions(Bucket=bucket)["Versions"]) == 1


def test_an_interrupted_upload_leaves_no_parts_to_pay_for(store: RawStore, s3_client: Any, bucket: str) -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > PART_BYTES + 100:
                raise ConnectionResetError
            return super().read(size)

    with pytest.raises(ConnectionResetError):
        store.put_stream(KEY, Breaking(LARGE), "audio/wav")
    assert "Uploads" not in s3_client.list_multipart_uploads(Bucket=bucket)


def test_a_wrong_key_is_refused_with_the_setting_to_look_at(target: S3Target) -> None:
    stranger = S3RawStore(replace(target, secret_key="wrong"), PART_BYTES)
    for call in (lambda: put_small(stranger, KEY, b"x"), lambda: put_streamed(stranger, KEY, LARGE)):
        with pytest.raises(InvalidRequest, match=r"s3\.secret_key"):
            call()


def test_keys_come_from_the_usual_chain_where_no_setting_names_them(
    s3_settings: Settings, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_settings.text("s3.access_key"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_settings.text("s3.secret_key"))
    unnamed = resolve(tmp_path, {}, {"s3.endpoint": s3_settings.text("s3.endpoint")}, {})
    store = open_raw_store(f"s3://{bucket}/p", unnamed)
    assert store.get(store.put_bytes(KEY, b"abc", "audio/wav")) == b"abc"
    assert S3Target.from_settings(f"s3://{bucket}", unnamed).lance()["access_key_id"]


class _Busy(Forwarder):
    """Answers SlowDown to every request but each third."""

    asked = 0

    def answer(self) -> None:
        type(self).asked += 1
        if type(self).asked % 3 == 0:
            super().answer()
            return
        self.body()
        said = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
        self.reply(503, {"Content-Type": "application/xml", "Content-Length": str(len(said))}, said)


@pytest.fixture
def busy(target: S3Target) -> Iterator[str]:
    """A server between us and the store that is mostly busy; the signature holds, since the host's name is kept."""
    with forwarding(target.endpoint.removeprefix("http://"), _Busy) as address:
        yield address


def test_a_server_that_says_slow_down_is_asked_again(target: S3Target, busy: str) -> None:
    store = S3RawStore(replace(target, endpoint=busy), PART_BYTES)
    for key, data in ((KEY, b"abc"), (KEY + ".large", LARGE)):
        assert store.get(put_streamed(store, key, data)) == data
    assert len(list(store.list())) == 2
