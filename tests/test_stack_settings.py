"""`headwater up` writes the stack's settings to a file of their own; the lake's are its user's."""

import os
import stat
import tomllib
from pathlib import Path

import pytest

from headwater import lake as lakes
from headwater.errors import InvalidRequest, Unavailable
from headwater.settings import FILE_NAME, load, resolve
from headwater.stack import versions
from headwater.stack.lake_file import STACK_FILE, with_settings, write_settings
from headwater.stack.part import Site
from headwater.stack.stack import PARTS, Stack
from headwater.stack.state import State
from headwater.storage.spark.jars import jars_for

KAFKA = {"log.uri": "kafka://127.0.0.1:21000/headwater.events"}
S3 = {"raw.uri": "s3://headwater/raw", "s3.endpoint": "http://127.0.0.1:22000", "s3.secret_key": "hush"}
SPARK = {"spark.master": "spark://127.0.0.1:23000", "spark.conf.spark.driver.host": "127.0.0.1"}


def told(directory: Path, known: dict[str, str]) -> list[str]:
    said: list[str] = []
    write_settings(directory, known, said.append)
    return said


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_the_first_start_makes_both_files_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    assert told(tmp_path, KAFKA | S3 | SPARK) == []
    assert mode(tmp_path / FILE_NAME) == mode(tmp_path / STACK_FILE) == 0o600
    settings = load(tmp_path, environment={})
    assert settings.text("s3.secret_key") == "hush"
    assert settings.section("spark.conf")["spark.driver.host"] == "127.0.0.1"
    assert tomllib.loads((tmp_path / STACK_FILE).read_text()) == tomllib.loads((tmp_path / FILE_NAME).read_text())


def test_what_a_user_wrote_outlives_every_start_to_the_letter(tmp_path: Path) -> None:
    told(tmp_path, KAFKA | S3)
    mine = '# mine\n[models]\nembed = "my:Own"  # not yet\n' + (tmp_path / FILE_NAME).read_text()
    mine = mine.replace("http://127.0.0.1:22000", "http://127.0.0.1:9")
    (tmp_path / FILE_NAME).write_text(mine)
    (sentence,) = told(tmp_path, KAFKA | S3)
    assert (tmp_path / FILE_NAME).read_text() == mine
    assert "is kept as it is" in sentence and "s3.endpoint" in sentence and "log.uri" not in sentence
    assert "hush" not in sentence


def test_parts_that_come_later_are_added_each_to_its_section_until_there_is_a_lake(tmp_path: Path) -> None:
    told(tmp_path, KAFKA)
    file = tmp_path / FILE_NAME
    file.write_text(file.read_text() + '\n[ spark ] # mine\nmemory_mb = 2048\n[s3]\nregion = "eu"\n')
    before = [line for line in file.read_text().splitlines() if line]
    assert told(tmp_path, KAFKA | S3 | SPARK) == []
    settings = load(tmp_path, environment={})
    assert settings.text("spark.master") == SPARK["spark.master"] and settings.whole("spark.memory_mb") == 2048
    assert settings.text("s3.region") == "eu" and settings.text("s3.secret_key") == "hush"
    assert [line for line in file.read_text().splitlines() if line in before] == before
    assert mode(file) == 0o600


def test_a_lake_that_was_made_keeps_its_places_when_a_part_comes(tmp_path: Path) -> None:
    told(tmp_path, SPARK)
    with lakes.init(tmp_path) as lake:
        uris = [lake.settings.text(name) for name in ("raw.uri", "log.uri")]
    (sentence,) = told(tmp_path, KAFKA | S3 | SPARK)
    assert "log.uri, raw.uri" in sentence
    settings = load(tmp_path, environment={})
    assert [settings.text(name) for name in ("raw.uri", "log.uri")] == uris
    assert load_stack(tmp_path)["log"]["uri"] == KAFKA["log.uri"]


def load_stack(directory: Path) -> dict[str, dict[str, str]]:
    return tomllib.loads((directory / STACK_FILE).read_text())


def test_a_file_in_another_spelling_is_left_alone_and_told(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('s3 = { region = "eu" }\n')
    assert with_settings((tmp_path / FILE_NAME).read_text(), S3) is None
    (sentence,) = told(tmp_path, S3)
    assert "raw.uri" in sentence
    assert (tmp_path / FILE_NAME).read_text() == 's3 = { region = "eu" }\n'
    (tmp_path / FILE_NAME).write_text("not = [toml")
    with pytest.raises(InvalidRequest, match="Mend it"):
        told(tmp_path, S3)


def test_a_new_lakes_settings_are_private_and_the_rest_is_as_the_umask_has_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        lakes.init(tmp_path / "lake").close()
    finally:
        os.umask(before)
    assert mode(tmp_path / "lake" / FILE_NAME) == 0o600
    assert mode(tmp_path / "lake") == 0o750
    assert mode(tmp_path / "lake" / "ledger.db") == 0o640


def test_what_spark_reaches_a_part_with_is_had_with_the_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State()
    state.allot((port for part in PARTS for port in part.ports), ["s3", "postgres"])
    parts = [part(Site(tmp_path, state.ports, state.keys)) for part in PARTS]
    settings = resolve(tmp_path, {}, {}, {})
    for part in parts:
        plain = {name: value for name, value in part.settings().items() if not name.startswith("spark.conf.")}
        settings = resolve(tmp_path, {}, {**{n: c.value for n, c in settings.chosen.items()}, **plain}, {})
    assert {jar for part in parts for jar in part.connector} == {*jars_for(settings)}
    # Where it cannot be had `up` says so, before anything is started.
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9")
    (tmp_path / "cache" / "kafka" / versions.KAFKA).mkdir(parents=True)
    with pytest.raises(Unavailable, match=r"spark-sql-kafka.* could not be fetched"):
        Stack(tmp_path / "stack").up(["kafka"])
    assert not Stack(tmp_path / "stack").parts()
