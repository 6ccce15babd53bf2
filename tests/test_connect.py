"""Recipes: another program reads the tables by what `headwater connect` prints, and no secret is in it unasked."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from calling import answer
from printed_recipe import run_script
from sample_rows import append, rows

import headwater
from headwater.domain.tables import MESSAGES
from headwater.errors import InvalidRequest
from headwater.settings import MASK
from headwater.storage.spark.catalog_conf import catalog_conf
from headwater.storage.tables import catalog as catalogs

# What a recipe leaves behind is called `rows`: an Arrow table, or a frame that is asked in the same way but for a word.
TELL = """
import json
columns = [rows[name] for name in ("customer", "text")]
lists = [column.to_pylist() if hasattr(column, "to_pylist") else column.to_list() for column in columns]
print(json.dumps(sorted(zip(*lists))))
"""
WANTED = [["acme", "again"], ["acme", "hello"]]
ENGINES = ("spark", "pyiceberg", "duckdb", "polars", "daft")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("connect") / "lake"
    with headwater.init(made) as lake:
        table = catalogs.open_catalog(lake.settings).load_table(MESSAGES.name)
        append(table, rows(MESSAGES, [{"customer": "acme", "text": text} for text in ("hello", "again")]))
    return made


@pytest.mark.parametrize("engine", ["pyiceberg", "duckdb", "polars", "daft"])
def test_a_recipe_runs_as_it_is_printed_and_reads_the_rows(directory: Path, engine: str) -> None:
    if engine == "daft" and importlib.util.find_spec(engine) is None:
        pytest.skip("daft is not installed: it asks for an older Arrow than ours")
    with headwater.open(directory) as lake:
        code = lake.upkeep.connect(engine).code
    done = subprocess.run([sys.executable, "-c", code + TELL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == WANTED


def test_a_spark_of_ones_own_made_as_it_is_printed_reads_the_rows(directory: Path, tmp_path: Path) -> None:
    with headwater.open(directory) as lake:
        code = lake.upkeep.connect("spark").code
    assert json.loads(run_script(f"{code}rows = rows.toArrow()\n{TELL}", tmp_path)) == WANTED


def test_spark_is_told_what_our_own_session_is_told(directory: Path) -> None:
    with headwater.open(directory) as lake:
        recipe = lake.upkeep.connect("spark")
        own = catalog_conf(lake.settings)
    assert own.items() <= recipe.conf.items() and recipe.secrets == ()
    assert recipe.conf["spark.jars.packages"] == ",".join(recipe.packages)
    assert not any("kafka" in name for name in recipe.packages)
    compile(recipe.code, "recipe", "exec")


@pytest.mark.parametrize("engine", ENGINES)
def test_no_secret_is_printed_unless_it_is_asked_for(tmp_path: Path, engine: str) -> None:
    headwater.init(tmp_path / "lake").close()
    chosen = {
        "catalog.uri": "postgresql://ann:pass-word-1@db/lake", "catalog.warehouse": "s3://bucket/lake",
        "s3.endpoint": "http://127.0.0.1:9000", "s3.access_key": "ann", "s3.secret_key": "hush-hush-2",
    }  # fmt: skip
    with headwater.open(tmp_path / "lake", chosen) as lake:
        shown = json.dumps(lake.upkeep.connect(engine).to_dict())
        whole = json.dumps(lake.upkeep.connect(engine, secrets=True).to_dict())
        names = lake.upkeep.connect(engine).secrets
    assert "pass-word-1" not in shown and "hush-hush-2" not in shown and MASK in shown
    assert "pass-word-1" in whole and "hush-hush-2" in whole and MASK not in whole
    assert len(names) == 2


def test_the_command_prints_a_recipe_for_one_program(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--lake", directory, "connect", "--duckdb", "--json").json
    assert found.keys() == {"engine", "packages", "conf", "code", "secrets"}
    assert "load_catalog" in answer(capsys, "--lake", directory, "connect", "--polars").out
    assert answer(capsys, "--lake", directory, "connect").code == InvalidRequest.exit_code
    with headwater.open(directory) as lake, pytest.raises(InvalidRequest, match="spark, pyiceberg"):
        lake.upkeep.connect("excel")
