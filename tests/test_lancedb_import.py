"""LanceDB without what no lake calls of it: a search does not wait for it, and who uses it has it whole."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lakes import small_lake

BEGIN = """
import json, sys
from headwater.storage.index.lancedb_import import import_lancedb
lancedb = import_lancedb()
"""
TABLE = """
import pyarrow as pa
rows = pa.table({"vector": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "text": ["refund"]})
database = lancedb.connect(sys.argv[1])
table = database.create_table("entries", rows)
"""


def told(code: str, *arguments: object) -> Any:
    """What a Python of its own says last, as JSON."""
    line = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    done = subprocess.run(line, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_cold_search_loads_no_pandas_and_no_client_for_catalogs_behind_http(tmp_path: Path) -> None:
    small_lake(tmp_path / "lake")
    code = """
import json, sys
from headwater.cli.main import main
assert main(["search", "refund", "--lake", sys.argv[1]]) == 0
heavy = {"pandas", "lance_namespace_urllib3_client", "urllib3", "requests", "overrides", "pyiceberg", "duckdb"}
print(json.dumps(["lancedb" in sys.modules, sorted(heavy & set(sys.modules))]))
"""
    assert told(code, tmp_path / "lake") == [True, []]


def test_pandas_that_somebody_imports_afterwards_is_known_to_pyarrow(tmp_path: Path) -> None:
    code = """
import numpy as np, pandas as pd
frame = pd.DataFrame({"a": [1.0, np.nan], "b": ["x", None]})
nulls = [pa.array(frame["a"]).null_count, pa.array(frame["b"].astype("category")).null_count]
print(json.dumps([nulls, pa.table(frame).num_rows, len(table.to_pandas()), type(pd.__spec__.loader).__name__]))
"""
    assert told(BEGIN + TABLE + code, tmp_path) == [[1, 1], 2, 1, "SourceFileLoader"]


def test_pandas_that_was_there_before_stays(tmp_path: Path) -> None:
    code = 'print(json.dumps([pa.array(pd.Series([1.0, float("nan")])).null_count, len(table.to_pandas())]))'
    assert told("import pandas as pd" + BEGIN + TABLE + code, tmp_path) == [1, 1]


def test_what_lancedb_asks_of_the_client_is_the_real_thing_when_it_is_asked(tmp_path: Path) -> None:
    code = """
listed = database.list_tables()
from lance_namespace_urllib3_client.models import ListTablesResponse
import lance_namespace
stand_in = lance_namespace.ListTablesResponse
class Mine(stand_in): pass
print(json.dumps([listed.tables, isinstance(listed, ListTablesResponse), isinstance(listed, stand_in),
                  stand_in(tables=["a"]).tables, issubclass(Mine, ListTablesResponse)]))
"""
    assert told(BEGIN + TABLE + code, tmp_path) == [["entries"], True, True, ["a"], True]


def test_a_lancedb_that_bears_no_stand_in_is_imported_as_everybody_does(tmp_path: Path) -> None:
    code = """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        client = sys.modules.get("lance_namespace_urllib3_client")
        if name == "lancedb.remote" and not getattr(client, "__file__", None):
            raise ImportError("a stand-in will not do")
sys.meta_path.insert(0, Refusing())
"""
    found = "print(json.dumps([database.list_tables().tables, 'overrides' in sys.modules]))"
    assert told(code + BEGIN + TABLE + found, tmp_path) == [["entries"], sys.version_info < (3, 12)]


@pytest.mark.parametrize(
    "first", ["import lancedb", "import lance_namespace", "import overrides", "import pyarrow.dataset"]
)
def test_whatever_was_imported_before_is_left_as_it_is(tmp_path: Path, first: str) -> None:
    name = first.removeprefix("import ")
    code = f"import sys\n{first}\nbefore = sys.modules[{name!r}]\n"
    same = f"print(json.dumps([sys.modules[{name!r}] is before, database.list_tables().tables]))"
    assert told(code + BEGIN + TABLE + same, tmp_path) == [True, ["entries"]]
