"""The architecture, held by tests that fail when it is broken; most show here that they would."""

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from lakes import CALL_CHUNK, small_lake

from headwater.domain import tables
from headwater.flow.map import BRONZE, DERIVE, EMBED, FLOW, INDEX, LAND, Stage

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "headwater"
MODULES = {
    LAND.name: "flow/land.py",
    BRONZE.name: "flow/bronze.py",
    DERIVE.name: "flow/derive/stage.py",
    EMBED.name: "flow/embed/stage.py",
    INDEX.name: "flow/index.py",
}
# What a docstring calls it → what the map calls it.
PLACES = {
    "raw store": "raw",
    "pointer log": "log",
    "index": "index",
    "files": "",
    **{t.name: t.name for t in tables.TABLES},
}


def lint_imports(source: Path, work: Path) -> subprocess.CompletedProcess[str]:
    """The contracts of pyproject.toml against a copy of the package."""
    shutil.copytree(source, work / "headwater", ignore=shutil.ignore_patterns("__pycache__", "recordings"))
    shutil.copy(ROOT / "pyproject.toml", work)
    return run_lint(work)


def run_lint(work: Path) -> subprocess.CompletedProcess[str]:
    code = (
        f"import sys; sys.path.insert(0, {str(work)!r}); from importlinter.cli import lint_imports; "
        f"sys.exit(lint_imports(config_filename='pyproject.toml', cache_dir=None, no_cache=True))"
    )
    return subprocess.run([sys.executable, "-c", code], check=False, cwd=work, capture_output=True, text=True)


def test_imports_go_down_only_and_the_contracts_notice_when_they_do_not(tmp_path: Path) -> None:
    sound = lint_imports(SOURCE, tmp_path)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    for module, line in (
        ("domain/keys.py", "import headwater.storage.memo.memo"),
        ("flow/embed/stage.py", "import headwater.flow.bronze"),
        ("flow/map.py", "import headwater.upkeep.format"),
        ("storage/query/reader.py", "import pyspark"),
        ("storage/raw/store.py", "import headwater.storage.memo.memo"),
        ("storage/ledger/ledger.py", "import headwater.storage.tables.commit"),
        ("flow/bronze.py", "import headwater.flow.drive.run"),
        ("flow/models/spending.py", "import headwater.flow.child.process"),
        ("upkeep/backup/backup.py", "import headwater.upkeep.migration.plan"),
        ("upkeep/rescan.py", "import headwater.upkeep.models.retire"),
        ("upkeep/task.py", "import headwater.upkeep.run"),
        ("cli/commands/restore.py", "import headwater.components"),
        ("facets/upkeep.py", "import headwater.lake"),
    ):
        broken = tmp_path / "headwater" / module
        before = broken.read_text()
        broken.write_text(f"{before}\n{line}\n")
        assert run_lint(tmp_path).returncode == 1, f"{line} in {module} went unnoticed"
        broken.write_text(before)
    for folder in ("storage", "flow", "upkeep"):
        stray = tmp_path / "headwater" / folder / "stray.py"
        stray.write_text("")
        assert run_lint(tmp_path).returncode == 1, f"{folder} has a room of which no contract knows"
        stray.unlink()


def chain_breaks(flow: Iterable[Stage]) -> list[str]:
    """Where a stage reads what no earlier one writes, or names what is not there."""
    places = {"raw", "log", "index", *(table.name for table in tables.TABLES)}
    written: set[str] = set()
    found = []
    for stage in flow:
        found += [f"{stage.name} reads {name} before it is written" for name in stage.reads if name not in written]
        found += [f"{stage.name} names {name}" for name in (*stage.reads, *stage.writes) if name not in places]
        written.update(stage.writes)
    return found


def test_the_map_is_a_chain() -> None:
    assert chain_breaks(FLOW) == []
    assert {name for stage in FLOW for name in stage.writes} >= {table.name for table in tables.TABLES}
    assert (
        chain_breaks(reversed(FLOW))
        and chain_breaks((LAND, DERIVE))
        and chain_breaks((Stage("x", (), ("y",), "", 1, ""),))
    )


def told(module: str, word: str) -> set[str]:
    """What a stage's docstring says after Reads or Writes."""
    text = ast.get_docstring(ast.parse((SOURCE / module).read_text(encoding="utf-8"))) or ""
    found = re.search(rf"^{word} +(.*?)(?=^[A-Z]|\Z)", text, re.MULTILINE | re.DOTALL)
    said = found[1] if found else ""
    return {place for name, place in PLACES.items() if re.search(rf"\b{re.escape(name)}\b", said) and place}


@pytest.mark.parametrize("stage", FLOW, ids=lambda stage: stage.name)
def test_a_stage_says_what_the_map_says(stage: Stage) -> None:
    assert told(MODULES[stage.name], "Reads") == set(stage.reads)
    assert told(MODULES[stage.name], "Writes") == set(stage.writes)


# Where Spark is asked about a table: nowhere else, so that its errors are translated in one place.
DOOR = {"storage/tables/read_table.py", "storage/tables/java_tables.py"}
PAST_THE_DOOR = re.compile(
    r"""["']lake\.(?:\w+\.\w|\{)|CATALOG\}\."""  # a table by its name in Spark's catalog
    r"""|\b\w*(?:spark|session)\.(?:sql\(|table\(|catalog\.)|\.saveAsTable\(|\.insertInto\(|\.writeTo\(|\.toTable\("""
    r"""|format\(["']iceberg["']\)|\bloadIceberg\w+\("""
    r"""|\.toArrow\(|\.toLocalIterator\("""  # what carries a DataFrame out
)


def past_the_door(source: Path) -> list[str]:
    """Lines that ask Spark for a table, or carry a DataFrame out, anywhere but in the door."""
    return [
        f"{file.relative_to(source)}:{number}: {line.strip()}"
        for file in sorted(source.rglob("*.py"))
        if str(file.relative_to(source)) not in DOOR
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if PAST_THE_DOOR.search(line)
    ]


PLANTED = """
rows = session.table(f"lake.{table.name}").where(chosen)
rows = self.spark.table(name).select("seq")
session.sql(f"CALL {CATALOG}.system.expire_snapshots('silver.messages')")
held = spark.read.format("iceberg").load("lake.silver.messages")
rows.write.saveAsTable('lake.silver.messages')
rows.writeTo(name).append()
rows.write.insertInto(name)
known = spark.catalog.tableExists(name)
java = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, name)
texts = rows.toArrow()
for row in rows.toLocalIterator():
"""


def test_spark_is_asked_about_tables_through_one_door_alone(tmp_path: Path) -> None:
    assert past_the_door(SOURCE) == []
    (tmp_path / "flow").mkdir()
    (tmp_path / "flow" / "planted.py").write_text(PLANTED)
    assert len(past_the_door(tmp_path)) == len(PLANTED.strip().splitlines())


PROBE = """
import json, sys
started = []
sys.addaudithook(lambda event, about: started.append(str(about[1])) if event == "subprocess.Popen" else None)
from headwater.cli.main import main
for line in json.loads(sys.argv[1]):
    exec(line["code"]) if "code" in line else main(line["line"])
    jvm = sorted({"pyspark", "py4j"} & set(sys.modules)) + [call for call in started if "java" in call]
    if jvm:
        print("JVM:", line, jvm, file=sys.stderr)
        sys.exit(1)
"""


def probe(*lines: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROBE, json.dumps(lines)], check=False, capture_output=True, text=True)


def test_reading_imports_no_spark_and_starts_no_java(tmp_path: Path) -> None:
    lake = str(small_lake(tmp_path / "lake"))
    lines = [
        ["settings"], ["flow"], ["run", "--once"], ["status"], ["metrics"], ["search", "refund"], ["trace", CALL_CHUNK],
        ["sql", "select count(*) from transcripts"], ["show", "captions"],
        ["sql", "select count(*) from transcripts", "--as-of", "main"], ["show", "captions", "--as-of", "2099-01-01"],
        ["trace", CALL_CHUNK, "--as-of", "main"], ["quarantine"], ["maintain", "--dry-run"],
        ["get", "e1", "-o", str(tmp_path / "call.wav")], ["put", "--text", "hello", "--customer", "acme"],
    ]  # fmt: skip
    done = probe(*({"line": [*line, "--lake", lake]} for line in lines))
    assert done.returncode == 0, done.stderr
    assert "headwater:" not in done.stderr


def test_the_probe_notices_a_jvm() -> None:
    assert probe({"code": "import py4j"}).returncode == 1
    assert probe({"code": "import subprocess; subprocess.run(['echo', 'java'], capture_output=True)"}).returncode == 1


# Whoever needs live parts opens them from the settings (`headwater.components`); in tests by `lakes.parts_of`.
PRIVATE_DOOR = re.compile(r"_components\b|(?<!\bself)(?<!\bcls)\._parts\b")


def private_doors(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if PRIVATE_DOOR.search(line)]


def test_nobody_reaches_into_a_lake_for_its_parts() -> None:
    files = [file for folder in ("src", "tests", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    files += [*(ROOT / "examples").rglob("*.ipynb"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    this = Path(__file__).resolve()
    found = {str(file): private_doors(file.read_text(encoding="utf-8")) for file in files if file.resolve() != this}
    assert {file: lines for file, lines in found.items() if lines} == {}


def test_a_reach_into_a_lake_is_noticed() -> None:
    for line in ("lake._components.ledger", "site.lake._parts.log", "self._lake._parts", "open(x)._parts.index"):
        assert private_doors(line), line
    for line in ("self._parts.ledger", "parts_of(lake).ledger", "components = Components(given)"):
        assert not private_doors(line), line


def test_a_module_says_where_it_stands_and_stays_readable() -> None:
    for file in SOURCE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(text)), f"{file} has no docstring"
        assert text.count("\n") <= 330, f"{file} has grown too long"
        assert file.stem not in {"utils", "common", "core", "helpers", "manager"}


@pytest.mark.parametrize(
    ("suite", "port"),
    [("vector_index", "index.vector_index"), ("pointer_log", "log.pointer_log"), ("raw_store", "raw.store")],
)
def test_the_suite_of_a_port_knows_no_adapter(suite: str, port: str) -> None:
    text = (Path(__file__).parent / f"behaviour_{suite}.py").read_text(encoding="utf-8")
    assert set(re.findall(r"headwater\.storage[\w.]*", text)) == {f"headwater.storage.{port}"}
