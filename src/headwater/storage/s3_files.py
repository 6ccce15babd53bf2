"""Files of tables on S3 for PyIceberg, through Arrow: patient with a busy server, able to trust one's own authority.

Named by its path in the catalog's properties, because PyIceberg makes it by itself.
"""

import os

from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, S3FileSystem
from pyiceberg.io import (
    S3_ACCESS_KEY_ID,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_REGION,
    S3_SECRET_ACCESS_KEY,
)
from pyiceberg.io.pyarrow import PyArrowFileIO

from headwater.storage.s3 import ATTEMPTS, RETRY_SECONDS

CA_FILE = "headwater.s3.ca-file"


class S3Files(PyArrowFileIO):
    """`s3`, `s3a` and `s3n` are one; so are Arrow's other file systems, which are left as they are."""

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
