"""A server that ignores If-None-Match would write over raw objects unseen: it is found out before the first put."""

import hashlib
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from behaviour_raw_store import KEY, LARGE, PART_BYTES, put_small, put_streamed
from own_parts import ignoring
from sample_rows import rows

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.domain.tables import EMBEDDINGS
from headwater.errors import Conflict, InvalidRequest
from headwater.setting import Chosen
from headwater.settings import FILE_NAME, Settings
from headwater.storage.index.vector_index import open_index
from headwater.storage.io.s3 import S3Target
from headwater.storage.raw.directory_store import DirectoryRawStore
from headwater.storage.raw.s3_store import S3RawStore
from headwater.upkeep.migration.object_copy import copy_objects

BOTH = pytest.mark.parametrize("data", [b"abc", LARGE], ids=["small", "large"])


def store_in(bucket: str, settings: Settings) -> S3RawStore:
    return S3RawStore(S3Target.from_settings(f"s3://{bucket}/p", settings), PART_BYTES)


def stored(client: Any, bucket: str) -> list[str]:
    """Every version of everything, delete markers and uploads that were begun."""
    found = client.list_object_versions(Bucket=bucket)
    begun = client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    return [entry["Key"] for entry in (*found.get("Versions", []), *found.get("DeleteMarkers", []), *begun)]


@pytest.fixture(params=[False, True], ids=["plain", "versioned"])
def any_bucket(request: pytest.FixtureRequest, s3_client: Any, bucket: str) -> str:
    if request.param:
        s3_client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return bucket


@pytest.fixture
def heedless(s3_settings: Settings) -> Iterator[Settings]:
    """The settings of a server that ignores the header altogether."""
    with ignoring(s3_settings) as (settings, _):
        yield settings


@BOTH
def test_nothing_is_put_there_and_what_is_stored_stays(
    s3_settings: Settings, heedless: Settings, s3_client: Any, any_bucket: str, data: bytes
) -> None:
    pointer = put_streamed(store_in(any_bucket, s3_settings), KEY, data)
    strange = store_in(any_bucket, heedless)
    for key in (KEY, KEY + ".other"):
        with pytest.raises((InvalidRequest, Conflict)):
            put_streamed(strange, key, data + b"!")
    with pytest.raises(InvalidRequest, match=r"raw\.uri ignores If-None-Match.*s3\.unconditional"):
        put_small(strange, KEY, b"new")
    assert strange.get(pointer) == data
    assert stored(s3_client, any_bucket) == [f"p/{KEY}"]


def test_a_command_says_so_and_publishes_nothing(
    heedless: Settings, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    lakes.init(lake).close()
    keys = "".join(f'{name} = "{heedless[f"s3.{name}"]}"\n' for name in ("endpoint", "access_key", "secret_key"))
    (lake / FILE_NAME).write_text(f'[raw]\nuri = "s3://{bucket}/raw"\n[s3]\n{keys}')
    (tmp_path / "call.wav").write_bytes(b"RIFF")
    assert main(["--lake", str(lake), "put", str(tmp_path / "call.wav"), "--customer", "acme"]) == 2
    assert "s3.unconditional = true" in capsys.readouterr().out
    with lakes.open(lake) as opened:
        assert not opened.pending()


def test_a_migration_to_it_is_refused_before_an_object_is_copied(
    heedless: Settings, s3_client: Any, bucket: str, tmp_path: Path
) -> None:
    source = DirectoryRawStore(tmp_path / "raw")
    source.put_bytes(KEY, b"abc", "audio/wav")
    with pytest.raises(InvalidRequest, match="If-None-Match"):
        list(copy_objects([KEY], source, store_in(bucket, heedless), lambda key: None, lambda: None))
    assert stored(s3_client, bucket) == []


@BOTH
def test_who_puts_up_with_it_has_each_key_looked_for_first(
    heedless: Settings, s3_client: Any, any_bucket: str, data: bytes
) -> None:
    allowed = replace(heedless, chosen={**heedless.chosen, "s3.unconditional": Chosen(True, "test")})
    store = store_in(any_bucket, allowed)
    pointer = put_streamed(store, KEY, data)
    assert put_streamed(store, KEY, data) == pointer
    for other in (b"new", LARGE + b"!"):
        with pytest.raises(Conflict, match="--id"):
            put_streamed(store, KEY, other)
    assert store.get(pointer) == data
    assert stored(s3_client, any_bucket) == [f"p/{KEY}"]


def test_a_server_that_heeds_it_for_whole_objects_only_gets_large_ones_whole(
    s3_settings: Settings, s3_client: Any, any_bucket: str
) -> None:
    with ignoring(s3_settings, ("POST",)) as (settings, puts):
        store = store_in(any_bucket, settings)
        pointer = put_streamed(store, KEY, LARGE)
        assert (pointer.size, pointer.checksum) == (len(LARGE), hashlib.sha256(LARGE).hexdigest())
        assert put_streamed(store, KEY, LARGE) == pointer
        # One who looks for it before it is there and finishes after: only the condition holds him off.
        late = io.BytesIO(LARGE + b"!")
        slow = store_in(any_bucket, settings)
        first = KEY + ".late"

        class Overtaken(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                if late.tell() and store.head(first) is None:
                    put_streamed(store, first, LARGE)
                return late.read(size)

        with pytest.raises(Conflict):
            slow.put_stream(first, Overtaken(), "audio/wav")
        assert store.get(replace(pointer, path=first, version_id=None)) == LARGE
    assert sorted(stored(s3_client, any_bucket)) == [f"p/{KEY}", f"p/{first}"]
    assert sum("partNumber" in put for put in puts) == 2, "parts were sent to try it out, and no more"


def test_it_is_tried_out_once_a_process_and_nothing_of_it_stays(
    s3_settings: Settings, s3_client: Any, any_bucket: str
) -> None:
    with ignoring(s3_settings, ()) as (settings, puts):
        for number in range(3):
            put_small(store_in(any_bucket, settings), f"{KEY}.{number}", b"abc")
        assert len(puts) == 2 + 3
    assert len(stored(s3_client, any_bucket)) == 3


def test_the_index_which_commits_by_it_is_not_written_there_either(
    heedless: Settings, s3_client: Any, bucket: str
) -> None:
    place = {"index.uri": Chosen(f"s3://{bucket}/index", "test")}
    index = open_index(replace(heedless, chosen={**heedless.chosen, **place}))
    with pytest.raises(InvalidRequest, match=r"index\.uri ignores If-None-Match"):
        index.upsert(rows(EMBEDDINGS, [{"fingerprint": "f", "vector": [1.0, 0.0]}]))
    assert stored(s3_client, bucket) == []
