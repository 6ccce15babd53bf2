"""The public surface is pinned: a name that comes or goes is a decision, not an accident."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import headwater
import headwater.demo.tour
import headwater.stack.stack
import headwater.web.server
from headwater.cli.main import COMMANDS
from headwater.facets.access import LakeAccess
from headwater.facets.events import LakeEvents
from headwater.facets.former_names import FormerNames
from headwater.facets.history import LakeHistory
from headwater.facets.models import LakeModels
from headwater.facets.quarantine import LakeQuarantine
from headwater.facets.upkeep import LakeUpkeep
from headwater.lake import Lake
from headwater.remote_lake import RemoteJob, RemoteLake, RemoteTable
from headwater.table_reader import TableReader

# Before a lake had facets; each goes on working.
FORMER_NAMES = {
    "backup", "dismiss", "maintain", "metrics", "plan_backup", "plan_dismissal", "plan_maintenance", "plan_rescan",
    "rescan", "retry",
}  # fmt: skip


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_the_package_exports_these_names() -> None:
    assert sorted(headwater.__all__) == [
        "Lake", "RemoteLake", "__version__", "check_event", "connect", "doctor", "event_schema", "init", "kinds",
        "migrate", "open", "plan_migration", "plan_restore", "plan_upgrade", "restore", "submit", "upgrade",
    ]  # fmt: skip
    assert all(getattr(headwater, name) for name in headwater.__all__)
    assert dir(headwater) == sorted(headwater.__all__)


def test_a_lake_mirrors_the_commands() -> None:
    assert public(Lake) == {
        "access", "close", "customers", "events", "export", "flow", "get", "history", "iter_put", "iter_put_lines",
        "journal",
        "label", "ls", "models", "open_object", "pending", "preview", "put", "put_lines", "put_rows", "put_text",
        "quarantine", "run", "search", "settings", "show", "spark", "sql", "status", "table", "thread", "trace",
        "upkeep", "view", "watch",
    } | FORMER_NAMES  # fmt: skip
    assert public(LakeAccess) == {"audit", "list", "make", "note", "revoke", "visitor"}
    assert public(LakeHistory) == {"plan_tag", "plan_untag", "snapshots", "tag", "tags", "untag"}
    assert public(LakeModels) == {
        "activate", "better", "book", "compare", "list", "plan_retire", "quote", "replay", "retire", "step_of",
    }  # fmt: skip
    assert public(LakeEvents) == {"correct", "plan_correction", "plan_skip", "show", "skip"}
    assert public(LakeQuarantine) == {"dismiss", "plan_dismissal", "retry"}
    assert public(LakeUpkeep) == {
        "backup", "check_event", "connect", "maintain", "metrics", "plan_backup", "plan_maintenance", "plan_rescan",
        "rescan", "serve_metrics",
    }  # fmt: skip
    assert public(TableReader) == {"about", "page", "snapshot", "to_arrow", "to_duckdb", "to_pandas", "to_spark"}


def test_a_remote_lake_has_the_names_of_the_lake() -> None:
    assert public(RemoteLake) - public(Lake) == {"apply", "plan"}
    assert public(RemoteTable) < public(TableReader)
    assert public(RemoteJob) == {"id", "state", "stop", "wait"}
    for name in public(RemoteLake) & public(Lake) - {"label", "quarantine", "run"}:
        far, near = (set(inspect.signature(getattr(kind, name)).parameters) for kind in (RemoteLake, Lake))
        assert far <= near, name


def test_each_former_name_is_that_of_a_facet() -> None:
    assert public(FormerNames) == FORMER_NAMES | {"upkeep", "quarantine"}
    for name in FORMER_NAMES:
        (facet,) = (kind for kind in (LakeUpkeep, LakeQuarantine) if name in public(kind))
        old, new = (inspect.signature(getattr(kind, name)) for kind in (FormerNames, facet))
        assert old == new, name
        assert f"lake.{'upkeep' if facet is LakeUpkeep else 'quarantine'}.{name}`" in getattr(Lake, name).__doc__


def twins() -> dict[str, list[str]]:
    """Of each command, as docs/cli.md tells them."""
    page = (Path(__file__).parent.parent / "docs" / "cli.md").read_text(encoding="utf-8")
    section = re.search(r"^## From Python\n(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)
    assert section is not None
    rows = re.findall(r"^\| `([a-z -]+)` \| (.*) \|$", section[1], re.MULTILINE)
    return {command: re.findall(r"`([\w.]+)", told) for command, told in rows}


def find(dotted: str) -> Any:
    """`lake.` is a lake; all else is a module or what is in one."""
    first, *rest = dotted.split(".")
    found: Any = Lake if first == "lake" else headwater
    for name in rest:
        found = FACETS.get((found, name)) or getattr(found, name)
    return found


FACETS = {
    (Lake, "access"): LakeAccess,
    (Lake, "history"): LakeHistory,
    (Lake, "models"): LakeModels,
    (Lake, "quarantine"): LakeQuarantine,
    (Lake, "events"): LakeEvents,
    (Lake, "upkeep"): LakeUpkeep,
}


def test_every_command_has_its_python_twin() -> None:
    told = twins()
    assert {command.split()[0] for command in told} == set(COMMANDS)
    for command, names in told.items():
        assert names, command
        for name in names:
            assert name.startswith(("lake.", "headwater.")) and "._" not in name
            assert find(name) is not None, name


def test_every_method_and_function_is_the_twin_of_a_command_or_one_of_a_few_others() -> None:
    told = {name for names in twins().values() for name in names}
    lake = {
        f"lake.{name}"
        for name in public(Lake) - FORMER_NAMES - {"access", "history", "models", "quarantine", "events", "upkeep"}
    }
    facets = {f"lake.{facet}.{name}" for (_, facet), kind in FACETS.items() for name in public(kind)}
    functions = {f"headwater.{name}" for name in headwater.__all__}
    assert (lake | facets | functions) - told == {
        "headwater.Lake", "headwater.RemoteLake", "headwater.__version__", "headwater.connect", "headwater.open",
        "lake.access.note", "lake.access.visitor",
        "lake.close", "lake.journal", "lake.models.book", "lake.models.step_of", "lake.open_object", "lake.pending",
        "lake.spark", "lake.table", "lake.upkeep.serve_metrics", "lake.view",
    }  # fmt: skip


def test_importing_the_package_is_light() -> None:
    code = "import sys, headwater; print(sorted({'click', 'numpy', 'pyarrow', 'pyspark', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_a_run_with_nothing_to_do_loads_none_of_the_libraries_that_read_tables(tmp_path: Path) -> None:
    headwater.init(tmp_path / "lake").close()
    heavy = "{'pyspark', 'duckdb', 'pyiceberg', 'lancedb', 'pandas', 'headwater.storage.query.reader'}"
    code = f"import sys, headwater; headwater.open(sys.argv[1]).run(); print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "lake"], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
