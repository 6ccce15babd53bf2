"""Loads a model in a process of its own that tells whether anything asked for the network."""

import subprocess
import sys
from typing import Any

CODE = """
import sys
asked = []
NETWORK = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}
sys.addaudithook(lambda name, about: asked.append(name) if name in NETWORK else None)
from headwater.flow.models.registry import load_model
try:
    load_model("m", {"m": OPTIONS}).load()
except Exception as error:
    print(f"{type(error).__name__}: {error}")
print("asked the network" if asked else "asked nobody")
"""


def load_offline(**options: Any) -> list[str]:
    """What it raised, if it did, and whether it asked the network."""
    code = CODE.replace("OPTIONS", repr(options))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()
