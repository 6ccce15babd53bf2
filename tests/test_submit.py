"""Submitting and shipping: a line that says only what it must, and an archive that runs under another Python."""

import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import lake_settings
from waiting import wait_until

from headwater.cli.main import main
from headwater.domain.model_book import KnownModel, State
from headwater.errors import InvalidRequest
from headwater.settings import resolve
from headwater.storage.ledger.ledger import open_ledger
from headwater.storage.ledger.model_book import change_book
from headwater.storage.spark.packed_environment import PYTHON, is_shipped, jars_conf, own_modules, pack, shipped_conf
from headwater.storage.spark.session import engine_conf
from headwater.storage.spark.submit import submit_line

FAR = "spark://cluster.example:7077"
NEAR = "spark://127.0.0.1:7077"


def test_executors_on_this_machine_share_its_python_and_others_are_sent_one(tmp_path: Path) -> None:
    settings = lake_settings(tmp_path)
    assert [is_shipped(settings, master) for master in ("local[2]", NEAR, FAR, "yarn", "k8s://https://host:6443")] == [
        False, False, True, True, True,
    ]  # fmt: skip
    assert is_shipped(lake_settings(tmp_path, **{"spark.ship": "packed"}), NEAR)
    assert not is_shipped(lake_settings(tmp_path, **{"spark.ship": "none"}), FAR)
    assert shipped_conf(settings, NEAR, print) == {}
    with pytest.raises(InvalidRequest, match="auto, packed or none"):
        is_shipped(lake_settings(tmp_path, **{"spark.ship": "maybe"}), FAR)


def test_a_master_reaches_spark_and_a_cluster_tries_lost_tasks_again(tmp_path: Path) -> None:
    far = engine_conf(lake_settings(tmp_path, **{"spark.master": FAR}))
    assert far["spark.master"] == FAR and int(far["spark.task.maxFailures"]) > 4
    # A cluster elsewhere must be able to reach the driver.
    assert "spark.driver.host" not in far
    assert engine_conf(lake_settings(tmp_path, **{"spark.master": NEAR}))["spark.driver.host"] == "127.0.0.1"


def test_the_line_names_what_spark_must_know_early_and_no_secret(tmp_path: Path) -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "hush", "spark.driver.host": "gateway", "spark.executor.memory": "4g"}
    settings = resolve(tmp_path / "lake", {"spark": {"conf": conf, "master": FAR}}, {"s3.secret_key": "hush"}, {})
    shipped = {"spark.archives": "/cache/e.tar.gz#environment", "spark.pyspark.python": PYTHON}
    line = submit_line(settings, [Path("/jars/a.jar"), Path("/jars/b.jar")], shipped, ["--once"])
    assert line[line.index("--master") + 1] == FAR
    assert line[line.index("--jars") + 1] == "/jars/a.jar,/jars/b.jar"
    assert line[line.index("--archives") + 1] == "/cache/e.tar.gz#environment"
    assert "spark.driver.host=gateway" in line and f"spark.pyspark.python={PYTHON}" in line
    assert line[-3:] == ["--lake", str(tmp_path / "lake"), "--once"] and Path(line[-4]).name == "submitted.py"
    assert Path(line[-4]).is_file() and Path(line[0]).is_file()
    assert not any("hush" in part for part in line)


def test_executors_on_this_machine_read_the_jars_where_they_are_and_others_are_sent_them(tmp_path: Path) -> None:
    """What is sent to an executor stays in its directory: 131 MB a run."""
    jars = [Path("/jars/a.jar"), Path("/jars/b.jar")]
    beside = "/jars/a.jar:/jars/b.jar"
    plain = lake_settings(tmp_path)
    assert jars_conf(plain, NEAR, jars) == {"spark.executor.extraClassPath": beside}
    assert jars_conf(plain, FAR, jars) == {"spark.jars": "/jars/a.jar,/jars/b.jar"}
    # Who ships packages to this machine says that its executors see other files: a container, say.
    packed = lake_settings(tmp_path, **{"spark.ship": "packed"})
    assert jars_conf(packed, NEAR, jars) == jars_conf(plain, FAR, jars)
    own = {"spark.executor.extraClassPath": "/mine.jar", "spark.jars": "/theirs.jar"}
    settings = resolve(tmp_path, {"spark": {"conf": own, "master": NEAR}}, {}, {})
    assert jars_conf(settings, NEAR, jars) == {"spark.executor.extraClassPath": f"{beside}:/mine.jar"}
    assert jars_conf(settings, FAR, jars) == {"spark.jars": "/jars/a.jar,/jars/b.jar,/theirs.jar"}
    line = submit_line(settings, jars, {}, [])
    assert "--jars" not in line and line[line.index("--driver-class-path") + 1] == beside
    assert f"spark.executor.extraClassPath={beside}:/mine.jar" in line


def test_the_command_prints_a_line_that_can_be_pasted(tmp_path: Path, capsys: Any) -> None:
    assert main(["init", str(tmp_path / "a lake")]) == 0
    capsys.readouterr()
    assert main(["submit", "--print", "--once", "--master", NEAR, "--lake", str(tmp_path / "a lake")]) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1 and f"'{tmp_path / 'a lake'}'" in line and " --once" in line
    assert main(["submit", "--print", "--lake", str(tmp_path / "a lake")]) == 2
    assert "--master spark://" in capsys.readouterr().err


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A small environment with what must come along and what must not."""
    place = tmp_path / "site-packages"
    for name, text in {
        "library/__init__.py": "word = 'packed'\n",
        "library/__pycache__/old.pyc": "",
        "pyspark/__init__.py": "",
        "pyspark/jars/spark.jar": "heavy",
        "pip/__init__.py": "",
        "__editable__.thing.pth": "/somewhere",
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


def test_an_archive_runs_wherever_it_is_unpacked_and_is_made_once(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "my_models.py").write_text("heard = 'my own model'\n")
    modules = {"my_models": tmp_path / "my_models.py", "headwater": Path("src/headwater").absolute()}
    said: list[str] = []
    archive = pack(site, modules, said.append)
    assert pack(site, modules, said.append) == archive and len(said) == 1
    with tarfile.open(archive) as packed:
        names = set(packed.getnames())
        packed.extractall(tmp_path / "work" / "environment", filter="data")
    assert {"bin/python", "lib/library/__init__.py", "lib/pyspark/__init__.py", "lib/my_models.py"} <= names
    assert not [name for name in names if "jars/" in name or "pycache" in name or "/pip/" in name or "pth" in name]
    # As an executor calls it: by a relative name, from its own directory, with another Python than this one.
    code = "import library, my_models, headwater, headwater.submitted; print(library.word, my_models.heard)"
    path = os.pathsep.join([os.path.dirname(os.path.realpath(sys.executable)), os.environ["PATH"]])
    line = [PYTHON, "-c", f"{code}; print(headwater.__file__)"]
    environment = {"PATH": path, "PYTHONPATH": str(tmp_path / "spark-adds-this")}
    done = subprocess.run(line, cwd=tmp_path / "work", env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == "packed my own model"
    assert done.stdout.splitlines()[1].startswith(str(tmp_path / "work" / "environment" / "lib"))
    (site / "library" / "__init__.py").write_text("word = 'changed and longer'\n")
    assert pack(site, modules, said.append) != archive


def test_archives_that_nobody_uses_are_removed_but_for_the_newest_few(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every change of a file makes another, of hundreds of megabytes."""
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    packing = f"pack(Path({str(site)!r}), {{}}, lambda _: None)"
    line = "from pathlib import Path; from headwater.storage.spark.packed_environment import pack"
    line += f"; print({packing}, flush=True)"

    def change(number: int) -> None:
        (site / "library" / "__init__.py").write_text(f"word = {10**number}\n")

    change(0)
    waits = "; import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", line + waits], stdin=-1, stdout=-1, text=True) as running:
        assert running.stdout is not None and running.stdin is not None
        used = Path(running.stdout.readline().strip())
        for number in range(1, 6):
            change(number)
            subprocess.run([sys.executable, "-c", line], check=True, stdout=subprocess.DEVNULL)
        kept = set((tmp_path / "cache" / "environments").iterdir())
        assert used in kept and len(kept) == 4, "three, and one that a run may still send to an executor"
        running.stdin.close()
    subprocess.run([sys.executable, "-c", line], check=True, stdout=subprocess.DEVNULL)
    assert not used.exists()


def test_models_of_the_lakes_own_are_shipped_by_their_module(tmp_path: Path) -> None:
    named = lake_settings(tmp_path, **{"models.transcribe": "cheap_models:CheapSpeech"})
    assert own_modules(named)["cheap_models"] == Path(__file__).parent / "cheap_models.py"
    with pytest.raises(InvalidRequest, match="no module nowhere"):
        own_modules(lake_settings(tmp_path, **{"models.embed": "nowhere.at_all:Model"}))


def test_a_model_is_shipped_whoever_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any setting of a model, a section that gives a place a name, or the book alone, where a replay brought it in."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("pictures_of_mine", "scans_of_mine", "named_of_mine", "replayed_of_mine"):
        (tmp_path / f"{module}.py").write_text("class Model: ...\n")
    document = {
        "models": {"picture": "pictures_of_mine:Model", "scans": "scans_of_mine:Model", "transcribe": "better"},
        "model": {"better": {"kind": "named_of_mine:Model", "size": 2}, "old": {"kind": "gone_since:Model"}},
    }
    settings = resolve(tmp_path / "lake", document, {}, {})
    settings.lake.mkdir()
    place = "replayed_of_mine:Model"
    known = KnownModel("caption", place, "mine 1", "0" * 16, State.STANDBY, "2026-03-01T00:00:00Z", replayed=True)
    change_book(open_ledger(settings.text("ledger.uri")), lambda book: book.with_model(known))
    shipped = {name for name in own_modules(settings) if name != "headwater"}
    assert shipped == {"pictures_of_mine", "scans_of_mine", "named_of_mine", "replayed_of_mine"}


# As spark-submit: it starts the driver, ends as that ends, and dies of a signal without telling it.
_SUBMIT = """#!/bin/bash
{python} {directory}/submitted.py &
wait $!
"""
_DRIVER = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print(os.getpid(), os.getppid(), flush=True)
signal.pause()
"""
_WRAPPER = """
import os, sys
from headwater.storage.spark.submit_process import run_submitted
sys.exit(run_submitted([sys.argv[1]], os.environ))
"""


@pytest.fixture
def submitted(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """The process that waits for spark-submit, and the pids of the driver and of spark-submit."""
    (tmp_path / "submitted.py").write_text(_DRIVER)
    (tmp_path / "spark-submit").write_text(_SUBMIT.format(python=sys.executable, directory=tmp_path))
    (tmp_path / "spark-submit").chmod(0o755)
    line = [sys.executable, "-c", _WRAPPER, str(tmp_path / "spark-submit")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        driver, submit = map(int, waiting.stdout.readline().split())
        yield waiting, driver, submit
        waiting.kill()


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_signal_stops_the_driver_and_its_exit_code_is_ours(
    submitted: tuple[subprocess.Popen[str], int, int],
) -> None:
    waiting, driver, submit = submitted
    waiting.terminate()
    assert waiting.wait(20) == 7
    assert not lives(driver) and not lives(submit)


def test_a_driver_does_not_outlive_its_spark_submit(submitted: tuple[subprocess.Popen[str], int, int]) -> None:
    waiting, driver, submit = submitted
    os.kill(submit, signal.SIGKILL)
    assert waiting.wait(20) == 128 + signal.SIGKILL
    wait_until(lambda: not lives(driver))
    assert not lives(driver)
