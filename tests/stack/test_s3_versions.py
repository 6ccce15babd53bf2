"""Raw objects in a bucket that keeps versions and locks objects: what others do there costs no pointer its bytes."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from behaviour_raw_store import KEY, LARGE, PART_BYTES, put_streamed

from headwater.errors import Conflict, DataFault
from headwater.settings import Settings
from headwater.storage.io.s3 import S3Target
from headwater.storage.raw.s3_store import S3RawStore

SIZES = pytest.mark.parametrize("data", [b"abc", LARGE], ids=["small", "large"])


@pytest.fixture
def locking(s3_client: Any, fresh_name: Callable[[], str]) -> str:
    """A bucket that keeps versions and every one of them for a day, whoever asks."""
    name = fresh_name()
    s3_client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    s3_client.put_object_lock_configuration(
        Bucket=name, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
    )
    return name


@pytest.fixture
def versioned(s3_client: Any, bucket: str) -> str:
    s3_client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return bucket


def store_in(bucket: str, settings: Settings) -> S3RawStore:
    return S3RawStore(S3Target.from_settings(f"s3://{bucket}/p", settings), PART_BYTES)


def versions(client: Any, bucket: str) -> int:
    return len(client.list_object_versions(Bucket=bucket).get("Versions", []))


@SIZES
def test_a_locked_object_is_written_once_and_its_deletion_is_refused_by_the_locks_name(
    locking: str, s3_settings: Settings, s3_client: Any, data: bytes
) -> None:
    store = store_in(locking, s3_settings)
    pointer = put_streamed(store, KEY, data)
    assert put_streamed(store, KEY, data) == pointer
    with pytest.raises(Conflict, match="--id"):
        put_streamed(store, KEY, data + b"!")
    with pytest.raises(Conflict, match=f"{KEY} is under object lock in s3://{locking}/p"):
        store.delete(KEY)
    assert store.get(pointer) == data
    assert versions(s3_client, locking) == 1


def test_a_refusal_says_until_when_and_of_a_legal_hold(locking: str, s3_settings: Settings, s3_client: Any) -> None:
    store = store_in(locking, s3_settings)
    pointer = put_streamed(store, KEY, b"abc")
    until = datetime.now(UTC) + timedelta(days=3)
    which = {"Bucket": locking, "Key": f"p/{KEY}", "VersionId": pointer.version_id}
    s3_client.put_object_retention(**which, Retention={"Mode": "COMPLIANCE", "RetainUntilDate": until})
    s3_client.put_object_legal_hold(**which, LegalHold={"Status": "ON"})
    with pytest.raises(Conflict, match=rf"compliance until {until:%Y-%m-%d %H:%M} UTC.*legal hold"):
        store.delete(KEY)


@SIZES
def test_a_pointer_reads_its_own_version_after_others_wrote_over_it_and_deleted_it(
    versioned: str, s3_settings: Settings, s3_client: Any, data: bytes
) -> None:
    store = store_in(versioned, s3_settings)
    pointer = put_streamed(store, KEY, data)
    s3_client.put_object(Bucket=versioned, Key=f"p/{KEY}", Body=b"z" * len(data))
    assert store.get(pointer) == data
    s3_client.delete_object(Bucket=versioned, Key=f"p/{KEY}")
    assert store.head(KEY) is None
    assert store.get(pointer) == data


@SIZES
def test_a_delete_marker_does_not_let_other_bytes_take_the_place_of_the_first(
    versioned: str, s3_settings: Settings, s3_client: Any, data: bytes
) -> None:
    store = store_in(versioned, s3_settings)
    pointer = put_streamed(store, KEY, data)
    s3_client.delete_object(Bucket=versioned, Key=f"p/{KEY}")
    with pytest.raises(Conflict, match="delete marker"):
        put_streamed(store, KEY, data + b"!")
    assert store.get(pointer) == data
    assert versions(s3_client, versioned) == 1
    assert "Uploads" not in s3_client.list_multipart_uploads(Bucket=versioned)


@pytest.mark.parametrize("versions_from_the_start", [True, False])
def test_deleting_leaves_no_bytes_in_any_version_and_other_objects_alone(
    bucket: str, s3_settings: Settings, s3_client: Any, versions_from_the_start: bool
) -> None:
    store, status = store_in(bucket, s3_settings), {"Status": "Enabled"}
    if versions_from_the_start:
        s3_client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=status)
    pointer, other = put_streamed(store, KEY, b"abc"), put_streamed(store, KEY + ".too", b"abc")
    s3_client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=status)
    s3_client.put_object(Bucket=bucket, Key=f"p/{KEY}", Body=b"theirs")
    s3_client.delete_object(Bucket=bucket, Key=f"p/{KEY}")
    for _ in range(2):
        store.delete(KEY)
        assert versions(s3_client, bucket) == 1
    with pytest.raises(DataFault, match="MISSING_OBJECT"):
        store.get(pointer)
    assert store.get(other) == b"abc"
    assert put_streamed(store, KEY, b"anew").size == 4


@pytest.mark.parametrize("foreign", ["01JZZZZZZZZZZZZZZZZZZZZZZZ", "not a version of this store"])
def test_the_versions_of_another_store_that_a_lake_came_from_do_no_harm(
    bucket: str, s3_settings: Settings, foreign: str
) -> None:
    store = store_in(bucket, s3_settings)
    pointer = replace(put_streamed(store, KEY, b"abc"), version_id=foreign)
    assert store.get(pointer) == b"abc"
    with pytest.raises(DataFault, match="MISSING_OBJECT"):
        store.get(replace(pointer, path=KEY + ".gone"))
