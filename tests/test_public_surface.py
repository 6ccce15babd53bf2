"""The public surface is pinned: a name that comes or goes is a decision, not an accident."""

import inspect
import subprocess
import sys

import headwater
from headwater.lake import Lake
from headwater.models import Models
from headwater.table_reader import TableReader


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_the_package_exports_four_names() -> None:
    assert sorted(headwater.__all__) == ["Lake", "__version__", "init", "open"]
    assert all(getattr(headwater, name) for name in headwater.__all__)
    assert dir(headwater) == sorted(headwater.__all__)


def test_a_lake_mirrors_the_commands() -> None:
    assert public(Lake) == {
        "backup", "close", "dismiss", "get", "maintain", "metrics", "models", "pending", "plan_backup",
        "plan_dismissal", "plan_maintenance", "plan_rescan", "put", "put_lines", "put_text", "quarantine", "rescan",
        "retry", "run", "search", "settings", "spark", "sql",
        "status", "table", "trace",
    }  # fmt: skip
    assert public(Models) == {"activate", "book", "compare", "list", "plan_retire", "quote", "replay", "retire"}
    assert public(TableReader) == {"snapshot", "to_arrow", "to_duckdb", "to_pandas", "to_spark"}


def test_importing_the_package_is_light() -> None:
    code = "import sys, headwater; print(sorted({'click', 'numpy', 'pyarrow', 'pyspark', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"
