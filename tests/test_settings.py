"""Settings: the later origin wins, the unknown is refused by its nearest name, every value is held to its range."""

import re
from pathlib import Path
from typing import Any

import pytest
from calling import answer

import headwater
from headwater import lake as lakes
from headwater.errors import InvalidRequest, NotFound
from headwater.settings import SETTINGS, load, resolve

LAKE = Path("/lake")


def chosen(
    name: str, document: dict[str, Any], options: dict[str, Any], environment: dict[str, str]
) -> tuple[Any, str]:
    found = resolve(LAKE, document, options, environment)
    return found[name], found.chosen[name].origin


def test_file_then_environment_then_option() -> None:
    document, environment, options = (
        {"run": {"batch_rows": 1}},
        {"HEADWATER_RUN_BATCH_ROWS": "2"},
        {"run.batch_rows": "3"},
    )
    assert chosen("run.batch_rows", {}, {}, {}) == (20_000, "default")
    assert chosen("run.batch_rows", document, {}, {}) == (1, "headwater.toml")
    assert chosen("run.batch_rows", document, {}, environment) == (2, "environment HEADWATER_RUN_BATCH_ROWS")
    assert chosen("run.batch_rows", document, options, environment) == (3, "option")


def test_defaults_stand_in_the_lake_and_every_default_is_in_its_range() -> None:
    found = resolve(LAKE, {}, {setting.name: setting.default for setting in SETTINGS}, {})
    assert found["raw.uri"] == "/lake/raw"
    assert found["catalog.uri"] == "sqlite:////lake/catalog.db"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"raw": {"url": "x"}}, "Did you mean raw.uri?"),
        ({"rwa": {"uri": "x"}}, "Did you mean raw.uri?"),
        ({"lake": "x"}, "lake"),
        ({"run": {"batch_rows": 0}}, "at least 1"),
        ({"maintain": {"file_mb": 1024}}, "between 1 and 512"),
        ({"run": {"batch_rows": "many"}}, "run.batch_rows must be a int"),
        ({"run": {"batch_rows": True}}, "run.batch_rows must be a int"),
        ({"s3": {"path_style": "maybe"}}, "s3.path_style must be a bool"),
        ({"raw": {"uri": ["x"]}}, "raw.uri must be a str"),
        ({"spark": {"conf": "x"}}, "spark.conf"),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(document: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        resolve(LAKE, document, {}, {})
    assert said in str(refused.value)


def test_open_sections_pass_through() -> None:
    found = resolve(LAKE, {"spark": {"conf": {"spark.executor.memory": "4g"}, "master": "local[2]"}}, {}, {})
    assert found.section("spark.conf") == {"spark.executor.memory": "4g"}
    assert (found["spark.master"], found.section("kafka.conf")) == ("local[2]", {})


def test_secrets_are_masked_only_when_set() -> None:
    def shown(options: dict[str, Any]) -> Any:
        rows = {row["name"]: row["value"] for row in resolve(LAKE, {}, options, {}).shown()}
        return rows["s3.secret_key"]

    assert (shown({}), shown({"s3.secret_key": "hush"})) == ("", "********")


def test_a_password_in_an_address_is_masked_too() -> None:
    def shown(uri: str) -> Any:
        rows = {row["name"]: row["value"] for row in resolve(LAKE, {}, {"ledger.uri": uri}, {}).shown()}
        return rows["ledger.uri"]

    assert shown("postgresql://ann:p%40ss:w@db:5432/lake") == "postgresql://ann:********@db:5432/lake"
    assert (
        shown("postgresql://db/lake?user=ann&password=hush&x=1")
        == "postgresql://db/lake?user=ann&password=********&x=1"
    )
    assert shown("postgresql://ann:p@ss@db/lake?sslpassword=hush") == (
        "postgresql://ann:********@db/lake?sslpassword=********"
    )
    assert shown("postgresql://ann@db/lake") == "postgresql://ann@db/lake"
    assert shown("sqlite:///a/b@c:d/ledger.db") == "sqlite:///a/b@c:d/ledger.db"


def test_a_directory_without_the_file_is_not_a_lake_and_bad_toml_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="headwater init"):
        load(tmp_path)
    (tmp_path / "headwater.toml").write_text("[raw\n")
    with pytest.raises(InvalidRequest, match=r"headwater\.toml"):
        load(tmp_path)


def test_every_setting_documents_itself() -> None:
    for setting in SETTINGS:
        assert setting.purpose.endswith((".", "…")) and len(setting.purpose) > 10, setting.name
        assert setting.name.count(".") == 1 and setting.name == setting.name.lower()


def test_a_variable_that_sets_nothing_is_told_with_the_nearest_that_does(tmp_path: Path) -> None:
    found = resolve(LAKE, {"model": {"mine": {"kind": "x:Y", "key_env": "HEADWATER_MY_KEY"}}}, {}, {})
    given = {"HEADWATER_RUN_BATCH_ROW": "2", "HEADWATER_MY_KEY": "k", "HEADWATER_LAKE": "x", "HEADWATER_RAW_URI": "y"}
    assert found.unheeded_variables(given) == [
        "The variable HEADWATER_RUN_BATCH_ROW sets nothing. Did you mean HEADWATER_RUN_BATCH_ROWS?"
    ]


def test_no_variable_that_our_code_reads_counts_as_a_slip() -> None:
    source = Path(headwater.__file__).parent
    read = {
        name for file in source.rglob("*.py") for name in re.findall(r"\bHEADWATER_[A-Z_]+[A-Z]\b", file.read_text())
    }
    assert resolve(LAKE, {}, {}, {}).unheeded_variables(dict.fromkeys(read, "")) == []


def test_an_opened_lake_says_which_variable_sets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lakes.init(tmp_path).close()
    monkeypatch.setenv("HEADWATER_RUN_TRIGER_SECONDS", "1")
    with pytest.warns(UserWarning, match="Did you mean HEADWATER_RUN_TRIGGER_SECONDS"), lakes.open(tmp_path):
        pass
    told = answer(capsys, "--lake", tmp_path, "status")
    assert "sets nothing. Did you mean HEADWATER_RUN_TRIGGER_SECONDS?" in told.err and told.code == 0
