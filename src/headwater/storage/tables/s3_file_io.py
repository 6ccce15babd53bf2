"""Files of tables on S3 for PyIceberg: patient with a busy server, able to trust one's own authority.

Named by its path in the catalog's properties, because PyIceberg makes it by itself. What only reads takes one request
for each piece, by obstore; Arrow, which asks for a file's size before it reads it, does the rest.
"""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, S3FileSystem
from pyiceberg.io import (
    S3_ACCESS_KEY_ID,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_REGION,
    S3_SECRET_ACCESS_KEY,
    InputFile,
    InputStream,
)
from pyiceberg.io.pyarrow import PyArrowFileIO

from headwater.storage.io.s3 import ATTEMPTS, RETRY_SECONDS, S3Target, is_s3

if TYPE_CHECKING:
    from obstore.store import S3Store

CA_FILE = "headwater.s3.ca-file"
_READ_WHOLE = (".json", ".avro")


class S3Files(PyArrowFileIO):
    """`s3`, `s3a` and `s3n` are one; so are Arrow's other file systems, which are left as they are."""

    def new_input(self, location: str) -> InputFile:  # type: ignore[override]
        """PyIceberg reads metadata and manifests whole."""
        if is_s3(location) and location.endswith(_READ_WHOLE):
            return _Object(location, *self._object(location))
        return super().new_input(location)

    def read_range(self, location: str, offset: int, count: int) -> bytes:
        store, key = self._object(location)
        with _translated(location):
            return bytes(store.get_range(key, start=offset, length=count))

    def _object(self, location: str) -> "tuple[S3Store, str]":
        bucket, _, key = location.partition("://")[2].partition("/")
        return _store(S3Target.from_iceberg(bucket, self.properties)), key

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        given = self.properties.get
        # As for boto3: not every server knows the newer trailing checksums, and Arrow has no option for them.
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        return S3FileSystem(
            endpoint_override=given(S3_ENDPOINT),
            region=given(S3_REGION),
            access_key=given(S3_ACCESS_KEY_ID),
            secret_key=given(S3_SECRET_ACCESS_KEY),
            force_virtual_addressing=given(S3_FORCE_VIRTUAL_ADDRESSING) == "true",
            tls_ca_file_path=given(CA_FILE),
            connect_timeout=RETRY_SECONDS,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
            # Small files then take one request, not the three of an upload in parts.
            allow_delayed_open=True,
        )


class _Object(InputFile):
    def __init__(self, location: str, store: "S3Store", key: str) -> None:
        super().__init__(location)
        self._store = store
        self._key = key

    def __len__(self) -> int:
        with _translated(self.location):
            return int(self._store.head(self._key)["size"])

    def exists(self) -> bool:
        try:
            return len(self) >= 0
        except FileNotFoundError:
            return False

    def open(self, seekable: bool = True) -> InputStream:
        with _translated(self.location):
            return io.BytesIO(self._store.get(self._key).bytes())


@cache
def _store(target: S3Target) -> "S3Store":
    """Kept: it holds the connections."""
    return target.store()


@contextmanager
def _translated(location: str) -> Iterator[None]:
    """As a file system would say it, which is what PyIceberg and those who ask it expect."""
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError:
        raise
    except BaseError as error:
        raise OSError(f"{location}: {str(error).partition(chr(10))[0][:200]}") from error
