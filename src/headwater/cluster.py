"""A run on a cluster, by spark-submit: the line that starts it, and starting it. Mirrors `headwater submit`."""

from collections.abc import Callable, Mapping
from pathlib import Path

from headwater.setting import Value

Options = Mapping[str, Value] | None
Report = Callable[[str], None]


def submit_line(
    directory: str | Path,
    options: Options = None,
    *,
    once: bool = False,
    as_json: bool = False,
    report: Report | None = None,
) -> list[str]:
    """The line as a list of its words; what it ships, jars and an environment, is made here. `spark.master` among the
    options says where to; with `once` the run ends when nothing is pending."""
    from headwater.settings import load
    from headwater.storage.spark.jars import jars_for, resolve_jars
    from headwater.storage.spark.packed_environment import shipped_conf
    from headwater.storage.spark.submit import submit_line

    note, settings = report or _silent, load(Path(directory), options)
    flags = [*(["--once"] if once else []), *(["--json"] if as_json else [])]
    sets = [part for name, value in (options or {}).items() for part in ("--set", f"{name}={value}")]
    shipped = shipped_conf(settings, settings.text("spark.master") or "local", note)
    return submit_line(settings, resolve_jars(jars_for(settings), report=note), shipped, [*flags, *sets])


def submit(
    directory: str | Path,
    options: Options = None,
    *,
    once: bool = False,
    as_json: bool = False,
    report: Report | None = None,
) -> int:
    """Run it until it ends, its output on ours; gives its exit code."""
    import os

    from headwater.settings import load
    from headwater.storage.io.java import check_java
    from headwater.storage.spark.submit import submit_environment
    from headwater.storage.spark.submit_process import run_submitted

    line = submit_line(directory, options, once=once, as_json=as_json, report=report)
    environment = {**os.environ, **submit_environment(load(Path(directory), options), check_java().executable)}
    return run_submitted(line, environment)


def _silent(*_: object) -> None:
    pass
