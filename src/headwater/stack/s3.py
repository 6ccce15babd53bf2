"""S3: versitygw, a gateway that keeps objects as files; versioning and object lock can be switched on for a bucket.

Writes  <cache>/versitygw/versitygw-<version>, built once for all stacks of the user; <stack>/s3
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, ClassVar, Final

from headwater.errors import Unavailable
from headwater.stack.part import Part, Report
from headwater.stack.process import Command, tail
from headwater.stack.versions import VERSITYGW, VERSITYGW_MODULE
from headwater.storage.io.cache import cache_directory
from headwater.storage.spark import jars

BUCKET: Final = "headwater"
REGION: Final = "us-east-1"
ACCESS_KEY: Final = "headwater"
BUILD_SECONDS: Final = 1_800


class S3(Part):
    name = "s3"
    group = "s3"
    ports: ClassVar = ("s3",)
    connector = jars.S3

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def version(self) -> str:
        return f"versitygw {VERSITYGW}"

    def prepare(self, report: Report) -> None:
        if not _program().is_file():
            report(f"Building the S3 server versitygw {VERSITYGW} with Go, in some minutes (once)")
            _build(_program())

    def initialise(self) -> None:
        for name in ("objects", "versions", "accounts"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        if not _keeps_attributes(self.directory):
            self._metadata.mkdir(exist_ok=True)

    def command(self) -> Command:
        """Versions stand outside of the objects, where every directory would be a bucket."""
        common = ["--port", self.address, "--quiet", "--keep-alive", "--iam-dir", str(self.directory / "accounts")]
        place = ["posix", "--versioning-dir", str(self.directory / "versions"), str(self.directory / "objects")]
        if self._metadata.is_dir():
            place[1:1] = ["--sidecar", str(self._metadata)]
        keys = {"ROOT_ACCESS_KEY_ID": ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": self.site.keys["s3"]}
        return Command([str(_program()), *common, *place], keys)

    def is_ready(self) -> bool:
        """It answers, and the bucket is there."""
        from botocore.exceptions import BotoCoreError, ClientError

        client = self._client()
        try:
            if BUCKET not in {found["Name"] for found in client.list_buckets()["Buckets"]}:
                client.create_bucket(Bucket=BUCKET)
        except (BotoCoreError, ClientError):
            return False
        return True

    def settings(self) -> dict[str, str]:
        """Tables, index and memo beside the raw objects, below prefixes of their own."""
        return {
            "raw.uri": f"s3://{BUCKET}/raw",
            "catalog.warehouse": f"s3://{BUCKET}/warehouse",
            "index.uri": f"s3://{BUCKET}/index",
            "memo.uri": f"s3://{BUCKET}/memo",
            "s3.endpoint": self.url,
            "s3.region": REGION,
            "s3.access_key": ACCESS_KEY,
            "s3.secret_key": self.site.keys["s3"],
        }

    @property
    def _metadata(self) -> Path:
        """Used where the file system keeps no attributes of files, as some temporary ones."""
        return self.directory / "metadata"

    def _client(self) -> Any:
        import boto3
        from botocore.config import Config

        patience = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1})
        session = boto3.Session(ACCESS_KEY, self.site.keys["s3"], region_name=REGION)
        return session.client("s3", endpoint_url=self.url, config=patience)


def _keeps_attributes(directory: Path) -> bool:
    try:
        os.setxattr(directory, "user.headwater", b"1")
    except (OSError, AttributeError):
        return False
    return True


def _program() -> Path:
    return cache_directory() / "versitygw" / f"versitygw-{VERSITYGW}"


def _build(target: Path) -> None:
    """Go's downloads, some 760 MB, stay until the build has succeeded, so that one that was interrupted goes on."""
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        raise Unavailable(
            "The S3 server is built with Go, which is missing: apt-get install golang-go, or see go.dev/doc/install"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    work, log = cache_directory() / "go", target.with_name("build.log")
    places = {"GOBIN": str(work / "bin"), "GOMODCACHE": str(work / "modules"), "GOCACHE": str(work / "build")}
    environment = {**os.environ, **places, "CGO_ENABLED": "0", "GOFLAGS": "-modcacherw -buildvcs=false"}
    with log.open("wb") as output:
        # Nobody waits for this build alone: other work on the machine goes first.
        command = ["nice", "-n", "19", go, "install", VERSITYGW_MODULE]
        try:
            code = subprocess.run(
                command, check=False, env=environment, stdout=output, stderr=output, timeout=BUILD_SECONDS
            ).returncode
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"versitygw was not built in {BUILD_SECONDS} s; try again, it goes on. Log: {log}"
            ) from None
    if code:
        raise Unavailable(f"versitygw could not be built: {tail(log, lines=3)} (log: {log})")
    (work / "bin" / "versitygw").replace(target)
    shutil.rmtree(work, ignore_errors=True)
