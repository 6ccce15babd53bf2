"""Runs one arm, in its environment: `python -m peers.arm MODULE VERB INBOX STATE`.

An arm is a module with three functions. `update(inbox, state)` brings the state up to the inbox, as a user of that
system would every day; `change(inbox, state)` makes the calls' rows anew with the changed step; `rows(state)` reads
everything back, to be proven equal. An arm may have more verbs of its own.
"""

import importlib
import json
import sys
from pathlib import Path

from peers import job


def main() -> None:
    name, verb, inbox, state = sys.argv[1:]
    arm = importlib.import_module(f"peers.{name}")
    if verb == "rows":
        print(json.dumps({"told": job.proof(arm.rows(Path(state)))}), flush=True)
    else:
        getattr(arm, verb)(Path(inbox), Path(state))


if __name__ == "__main__":
    main()
