"""A third party's model: installed by pip, named in headwater.toml, refused in a sentence where it does not fit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
USE = """
from pathlib import Path
import numpy as np
from headwater import settings
from headwater.flow.models.port import Sound
from headwater.flow.models.registry import load_model

model = load_model("ours", settings.load(Path(".")).models)
model.load()
loud, quiet = (Sound(iter([np.full(16000, level, np.int16)])) for level in (900, 100))
print([said.text for said in model.run([loud, quiet])], model.card.parameters)
try:
    load_model("loudness", {"loudness": {"colour": "red"}})
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built and installed as a user would, but without the network and outside this environment."""
    target = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "loudness_model.py"):
        (source / name).write_bytes((ROOT / "examples" / "loudness_model" / name).read_bytes())
    command = ["-m", "pip", "install", "--no-build-isolation", "--no-deps", "--target", str(target), str(source)]
    done = subprocess.run(
        [sys.executable, *command], env={**os.environ, **OFFLINE}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


def use(place: str, lake: Path) -> "subprocess.CompletedProcess[str]":
    (lake / "headwater.toml").write_text('[model.ours]\nkind = "loudness"\nloud_above = 500\n')
    environment = {**os.environ, "PYTHONPATH": place}
    return subprocess.run(
        [sys.executable, "-c", USE], env=environment, cwd=lake, capture_output=True, text=True, check=False
    )


def test_a_model_that_pip_installed_is_named_in_the_lakes_settings(installed: Path, tmp_path: Path) -> None:
    done = use(str(installed), tmp_path)
    assert done.returncode == 0, done.stderr
    answers, refusal = done.stdout.splitlines()
    assert answers == "['loud', 'quiet'] {'loud_above': 500}"
    assert refusal.startswith("InvalidRequest [model.loudness] does not fit") and "loud_above" in refusal


def test_without_the_package_its_name_is_unknown(tmp_path: Path) -> None:
    done = use("", tmp_path)
    assert done.returncode == 1 and "Unknown model loudness" in done.stderr
