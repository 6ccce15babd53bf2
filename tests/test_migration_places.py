"""A part moves where other bytes or rows would be behind its address, and only there; nothing shows a password."""

import json
from pathlib import Path
from typing import Any

import pytest
from lakes import parts_of, small_lake
from test_migration import migrate

from headwater import lake as lakes
from headwater.cli.main import main
from headwater.errors import InvalidRequest
from headwater.settings import FILE_NAME, Settings, load, resolve
from headwater.upkeep.migration.new_settings import BEFORE
from headwater.upkeep.migration.places import moving, shown

PASSWORD = "p@ss/w0rd"


def settings(sections: dict[str, dict[str, Any]]) -> Settings:
    return resolve(Path("/lake"), sections, {}, {})


def on_s3(bucket: str = "b", **s3: str) -> Settings:
    return settings({"raw": {"uri": f"s3://{bucket}/raw"}, "s3": s3})


def ledger(uri: str) -> Settings:
    return settings({"ledger": {"uri": uri}})


def log(uri: str, **conf: str) -> Settings:
    return settings({"log": {"uri": uri}, "kafka": {"conf": {key.replace("_", "."): conf[key] for key in conf}}})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (on_s3(endpoint="http://one:9000"), on_s3(endpoint="http://two:9000")),
        (on_s3(endpoint="http://one:9000"), on_s3(endpoint="http://one:9001")),
        (on_s3(), on_s3(endpoint="http://one:9000")),
        (on_s3(), on_s3("c")),
        (on_s3(), on_s3(region="cn-north-1")),
        (ledger("postgresql://u@h/one"), ledger("postgresql://u@h/two")),
        (ledger("postgresql://u@h/one"), ledger("postgresql://u@g/one")),
        (ledger("postgresql://u@h/one"), ledger("postgresql://u@h:5433/one")),
        (ledger("postgresql://u@h/one"), ledger("postgresql://u@h/one?options=-csearch_path%3Dother")),
        (ledger("postgresql://one@h"), ledger("postgresql://two@h")),
        (log("kafka://h:9092/t"), log("kafka://h:9092/s")),
        (log("kafka://h:9092/t"), log("kafka://h:9092/t", bootstrap_servers="g:9092")),
    ],
)
def test_another_server_database_or_bucket_is_another_place(before: Settings, after: Settings) -> None:
    assert len(moving(before, after)) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (on_s3(endpoint="http://one:9000"), on_s3(endpoint="http://ONE:9000/", access_key="other")),
        (on_s3(region="us-east-1"), on_s3(region="eu-west-1", endpoint="https://s3.eu-west-1.amazonaws.com")),
        (ledger("postgresql://one@h/db"), ledger("postgres://two:secret@H:5432/db")),
        (ledger("postgresql://h/db"), ledger("postgresql://h/db?user=u&password=p&sslmode=require")),
        (log("kafka://h:1,g:2/t"), log("kafka://g:2,h:1/t", security_protocol="SSL")),
        (settings({"raw": {"uri": "/lake/raw"}}), settings({"raw": {"uri": "file:///lake/x/../raw/"}})),
    ],
)
def test_one_place_reached_in_another_way_is_no_move(before: Settings, after: Settings) -> None:
    assert moving(before, after) == []


def test_no_password_is_shown_wherever_an_address_holds_it() -> None:
    assert shown(f"postgresql://me:{PASSWORD.replace('/', '%2F')}@host/db") == "postgresql://host/db"
    hidden = shown(f"postgresql://host/db?user=me&password={PASSWORD}&sslpassword=other&sslmode=require")
    assert hidden == "postgresql://host/db?user=me&password=********&sslpassword=********&sslmode=require"
    assert shown("s3://bucket/a@b") == "s3://bucket/a@b"


def test_the_same_bucket_on_another_server_is_in_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake, file = small_lake(tmp_path / "lake"), tmp_path / "new.toml"
    (lake / FILE_NAME).write_text('[index]\nuri = "s3://b/index"\n[s3]\nendpoint = "http://one.invalid"\n')
    file.write_text('[s3]\nendpoint = "http://two.invalid"\n')
    capsys.readouterr()
    assert main(["migrate", "--to", str(file), "--lake", str(lake), "--dry-run", "--json"]) == 0
    (part,) = json.loads(capsys.readouterr().out)["parts"]
    assert (part["setting"], part["before"], part["after"]) == (
        "index.uri",
        "s3://b/index at http://one.invalid",
        "s3://b/index at http://two.invalid",
    )


def test_an_overridden_place_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, file = small_lake(tmp_path / "lake"), tmp_path / "new.toml"
    file.write_text(f'[raw]\nuri = "{tmp_path}/raw"\n')
    done = migrate(lake, file, "--set", f"raw.uri={lake}/raw")
    assert done.code == InvalidRequest.exit_code and "raw.uri is overridden by --set raw.uri" in done.out
    monkeypatch.setenv("HEADWATER_RAW_URI", f"{lake}/raw")
    done = migrate(lake, file)
    assert done.code == InvalidRequest.exit_code and "HEADWATER_RAW_URI" in done.out
    assert not (lake / BEFORE).exists()
    monkeypatch.delenv("HEADWATER_RAW_URI")
    assert migrate(lake, file, "--set", "telemetry.level=debug").code == 0
    assert load(lake).text("raw.uri") == f"{tmp_path}/raw"


def test_settings_that_move_nothing_are_switched_too(tmp_path: Path) -> None:
    lake, file = small_lake(tmp_path / "lake"), tmp_path / "new.toml"
    file.write_text(
        f'[raw]\nuri = "file://{lake}/raw"\n[kafka.conf]\n"sasl.password" = "{PASSWORD}"\n'
        '[spark.conf]\n"spark.ui.port" = "4050"\n[model.whisper]\nkind = "faster-whisper"\n'
    )
    done = migrate(lake, file)
    plan = json.loads(done.out)
    assert (done.code, plan["applied"], plan["parts"]) == (0, True, [])
    assert set(plan["changed"]) == {"raw.uri", "kafka.conf.sasl.password", "spark.conf.spark.ui.port", "model.whisper"}
    after = load(lake)
    assert after.section("kafka.conf")["sasl.password"] == PASSWORD
    assert after.section("spark.conf")["spark.ui.port"] == "4050"
    assert after.models["whisper"] == {"kind": "faster-whisper"}
    with lakes.open(lake) as opened:
        (run,) = parts_of(opened).ledger.runs(1)
        assert (run.kind, run.outcome) == ("migrate", "done")
        assert PASSWORD not in done.out + json.dumps(dict(run.detail))
    assert json.loads(migrate(lake, file).out)["changed"] == {}
