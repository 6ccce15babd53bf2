"""What a writer that was killed left of an upload in parts is given up by maintenance, and nobody else's."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from behaviour_raw_store import KEY, PART_BYTES
from own_parts import Forwarder, forwarding

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.settings import FILE_NAME, Settings

# Sends two parts, says so, and waits for a third that never comes.
WRITER = """
import sys
from pathlib import Path
from headwater import settings
from headwater.components import Components
class Slow:
    sent = 0
    def read(self, size):
        self.sent += size
        if self.sent > 2 * size:
            print("waiting", flush=True)
            sys.stdin.read()
        return b"x" * size
Components(settings.load(Path(sys.argv[1]))).raw_store.put_stream(sys.argv[2], Slow(), "audio/wav")
"""


@pytest.fixture
def lake(s3_settings: Settings, bucket: str, tmp_path: Path) -> Path:
    directory = tmp_path / "lake"
    directory.mkdir()
    keys = "".join(f'{name} = "{s3_settings[f"s3.{name}"]}"\n' for name in ("endpoint", "access_key", "secret_key"))
    place = f'[raw]\nuri = "s3://{bucket}/lake/raw"\npart_bytes = {PART_BYTES}\n'
    (directory / FILE_NAME).write_text(f"{place}[s3]\n{keys}")
    lakes.init(directory).close()
    return directory


def maintain(lake: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    capsys.readouterr()
    assert main(["--lake", str(lake), "--json", "maintain", *options]) == 0
    return json.loads(capsys.readouterr().out)


def begun(client: Any, bucket: str) -> list[str]:
    return [upload["Key"] for upload in client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]


def test_what_a_killed_writer_left_is_given_up_and_told(
    lake: Path, s3_client: Any, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [sys.executable, "-c", WRITER, str(lake), KEY]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"waiting\n"
        writer.kill()
    s3_client.create_multipart_upload(Bucket=bucket, Key="lake/raw-of-others")
    assert begun(s3_client, bucket) == ["lake/raw-of-others", f"lake/raw/{KEY}"]
    assert maintain(lake, capsys, "--dry-run")["uploads"] == 0, "a day has not passed"
    assert maintain(lake, capsys)["tables"] == []
    with (lake / FILE_NAME).open("a") as settings:
        settings.write("[maintain]\nupload_hours = 0\n")
    assert maintain(lake, capsys, "--dry-run")["uploads"] == 1
    (done,) = maintain(lake, capsys)["tables"]
    assert (done["table"], done["files_before"], done["files_after"]) == ("uploads", 1, 0)
    assert begun(s3_client, bucket) == ["lake/raw-of-others"]
    assert maintain(lake, capsys)["tables"] == []


class _NoDeletes(Forwarder):
    """A key that may list uploads and may not give them up."""

    def answer(self) -> None:
        if self.command != "DELETE":
            super().answer()
            return
        self.body()
        body = b"<Error><Code>AccessDenied</Code></Error>"
        self.reply(403, {"Content-Length": str(len(body)), "Connection": "close"}, body)


def test_a_key_that_may_not_give_uploads_up_costs_a_warning_and_nothing_else(
    lake: Path, s3_settings: Settings, s3_client: Any, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        s3_client.create_multipart_upload(Bucket=bucket, Key=f"lake/raw/audio/acme/2026-03-01/{name}.wav")
    endpoint = s3_settings.text("s3.endpoint")
    with forwarding(endpoint.removeprefix("http://"), _NoDeletes) as gate:
        written = (lake / FILE_NAME).read_text().replace(endpoint, gate)
        (lake / FILE_NAME).write_text(f"{written}[maintain]\nupload_hours = 0\n")
        (done,) = maintain(lake, capsys)["tables"]
    assert (done["table"], done["files_before"], done["files_after"]) == ("uploads", 2, 2)
    assert len(begun(s3_client, bucket)) == 2
    (warning,) = [line for line in logged(lake) if line["event"] == "maintain.skipped"]
    assert (warning["level"], warning["uploads"]) == ("warning", 2) and "AccessDenied" in warning["detail"]


def logged(lake: Path) -> list[dict[str, Any]]:
    files = sorted((lake / "logs").glob("headwater*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]
