"""A child fetches from S3: what is wrong with the store is no fault of an object, and versions outlive their name."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from behaviour_raw_store import KEY
from own_parts import Forwarder, forwarding

from headwater.errors import Unavailable
from headwater.flow.derive import fetch as fetching
from headwater.flow.derive.fetch import Fetcher
from headwater.flow.derive.sandbox import Sandbox
from headwater.flow.derive.source import Limits
from headwater.settings import Settings
from headwater.storage.raw.store import open_raw_store

S3 = ("s3.endpoint", "s3.region", "s3.access_key", "s3.secret_key", "s3.path_style")


@pytest.fixture
def config(s3_settings: Settings, bucket: str, tmp_path: Path) -> dict[str, Any]:
    told = {name: s3_settings[name] for name in S3} | {"raw.uri": f"s3://{bucket}/p", "limits.step_seconds": 5.0}
    return {"lake": str(tmp_path), "settings": told}


@pytest.fixture
def pointer(config: dict[str, Any], s3_settings: Settings, s3_client: Any, bucket: str) -> dict[str, Any]:
    s3_client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    store = open_raw_store(config["settings"]["raw.uri"], s3_settings)
    return asdict(store.put_bytes(KEY, b"RIFF, and no more", "audio/wav"))


def derived(config: dict[str, Any], pointer: dict[str, Any]) -> dict[str, Any]:
    sandbox = Sandbox(config)
    try:
        return sandbox.derive(["probe"], "audio", pointer)
    finally:
        sandbox.close()


def test_a_key_that_is_refused_quarantines_nothing(config: dict[str, Any], pointer: dict[str, Any]) -> None:
    assert "fault" in derived(config, pointer)["probe"], "its bytes are no sound, and that is told"
    config["settings"]["s3.secret_key"] = "wrong"
    with pytest.raises(Unavailable, match=r"s3\.secret_key"):
        derived(config, pointer)


def test_an_authority_that_is_missing_on_a_machine_quarantines_nothing(
    config: dict[str, Any], pointer: dict[str, Any]
) -> None:
    config["settings"]["s3.ca_file"] = "nowhere.pem"
    with pytest.raises(Unavailable, match=r"nowhere\.pem"):
        derived(config, pointer)


def test_a_path_that_no_store_takes_is_its_events_fault(config: dict[str, Any], pointer: dict[str, Any]) -> None:
    assert derived(config, {**pointer, "path": "../secret"})["probe"]["fault"][0] == "BAD_EVENT"


@pytest.mark.parametrize("trouble", ["written over", "deleted"])
def test_a_large_object_is_read_in_its_own_version(
    config: dict[str, Any], pointer: dict[str, Any], s3_client: Any, bucket: str, trouble: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(fetching, "MEMORY_BYTES_MAX", 4)
    if trouble == "written over":
        s3_client.put_object(Bucket=bucket, Key=f"p/{KEY}", Body=b"theirs")
    else:
        s3_client.delete_object(Bucket=bucket, Key=f"p/{KEY}")
    fetcher = Fetcher(config, Limits.from_settings({}))
    fetcher.verify(pointer)
    with fetcher.fetched(pointer) as found:
        assert isinstance(found, Path) and found.read_bytes() == b"RIFF, and no more"


class _Slow(Forwarder):
    """Longer than a step may take, but it answers."""

    def answer(self) -> None:
        time.sleep(7)
        super().answer()


@pytest.fixture
def slow(s3_settings: Settings) -> Iterator[str]:
    with forwarding(s3_settings.text("s3.endpoint").removeprefix("http://"), _Slow) as address:
        yield address


def test_a_slow_store_is_waited_for_beyond_the_time_of_a_step(
    config: dict[str, Any], pointer: dict[str, Any], slow: str
) -> None:
    config["settings"]["s3.endpoint"] = slow
    assert derived(config, pointer)["probe"]["fault"][0] not in {"TIMEOUT", "MISSING_OBJECT"}
