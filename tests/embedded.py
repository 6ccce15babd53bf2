"""Runs an embedded model on real media in a process of its own that has no network, no home and no sound card."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from headwater.storage.io.cache import cache_directory

CODE = """
import json, sys
NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
def refuse(name, about):
    if name in NETWORK:
        raise OSError(f"no network: {name} {about}")
sys.addaudithook(refuse)
sys.modules["sounddevice"] = None  # as where PortAudio is missing
from headwater.flow.models.registry import load_model
name, *options = sys.argv[1].split(" ", 1)
model = load_model(name, {name: json.loads(each) for each in options})
model.load()
INPUT
(answer,) = model.run([given])
print(json.dumps(answer.text if hasattr(answer, "text") else answer.tolist()))
"""
HEAR = """
from pathlib import Path
from headwater.demo.drawing import read_wav
from headwater.flow.models.port import Sound
given = Sound(iter([read_wav(Path(sys.argv[2]))]))
"""
READ = """
import numpy as np
from PIL import Image
given = np.asarray(Image.open(sys.argv[2]).convert("RGB"))
"""
PLACE = """
given = sys.argv[2]
"""


def answer_offline(code: str, model: str, given: str | Path, home: Path) -> Any:
    """What the model answers; raises where it asked for the network, or left anything in its home.

    After the model's name and a blank, its options may stand as JSON.
    """
    home.mkdir()
    places = {"HOME": home, "XDG_CACHE_HOME": home / "cache", "HF_HOME": home / "hf", "TMPDIR": home}
    # Where set-up put the weights that come in no package; nobody but Headwater knows this variable.
    places["HEADWATER_CACHE"] = cache_directory()
    environment = {**os.environ, **{name: str(place) for name, place in places.items()}}
    done = subprocess.run(
        [sys.executable, "-c", CODE.replace("INPUT", code), model, str(given)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert not list(home.iterdir())
    return json.loads(done.stdout.splitlines()[-1])
