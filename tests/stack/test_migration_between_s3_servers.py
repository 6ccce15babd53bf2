"""A lake moved to another S3 server is whole there, though its buckets have the same names."""

import io
import json
import uuid
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import boto3
import pytest
from lakes import CALL_BYTES, small_lake
from test_migration_to_servers import state

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.settings import Settings, load
from headwater.stack.stack import Stack
from headwater.upkeep.migration.new_settings import to_toml

KEYS = ("endpoint", "access_key", "secret_key", "region")
PLACES = ("raw.uri", "catalog.warehouse", "index.uri", "memo.uri")


def server(settings: Settings) -> dict[str, Any]:
    return {key: settings.text(f"s3.{key}") for key in KEYS}


def move(lake: Path, to: Settings, **others: dict[str, Any]) -> dict[str, Any]:
    """To a server, with another catalog: one cannot hold a table twice."""
    file, out = lake.parent / "new.toml", io.StringIO()
    catalog = {"uri": f"sqlite:///{lake.parent}/{uuid.uuid4().hex}.db", **others.pop("catalog", {})}
    file.write_text(to_toml({"s3": server(to), "catalog": catalog, **others}), encoding="utf-8")
    with redirect_stdout(out):
        assert main(["migrate", "--to", str(file), "--lake", str(lake), "--json"]) == 0
    assert to.text("s3.secret_key") not in out.getvalue()
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


@pytest.mark.timeout(300)
def test_the_same_buckets_on_another_server_get_everything(
    s3_settings: Settings, bucket: str, open_directory: Path, tmp_path: Path
) -> None:
    lake = small_lake(tmp_path / "lake")
    before = state(lake)
    on_s3 = {section: {"uri": f"s3://{bucket}/{section}"} for section in ("raw", "index", "memo")}
    move(lake, s3_settings, **on_s3, catalog={"warehouse": f"s3://{bucket}/warehouse"})
    assert state(lake) == before

    other = Stack(open_directory)
    other.up(["s3"])
    there = other.settings(tmp_path)
    keys = there.text("s3.access_key"), there.text("s3.secret_key")
    session = boto3.Session(*keys, region_name=there.text("s3.region"))
    session.client("s3", endpoint_url=there.text("s3.endpoint")).create_bucket(Bucket=bucket)
    told = move(lake, there)
    assert {part["setting"] for part in told["parts"]} == {*PLACES, "catalog.uri"}
    assert load(lake).text("s3.endpoint") == there.text("s3.endpoint") != s3_settings.text("s3.endpoint")
    assert state(lake) == before
    with lakes.open(lake) as moved:
        assert b"".join(moved.get("e1")) == CALL_BYTES
        assert moved.pending().index == 3
