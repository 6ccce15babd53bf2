"""What spark-submit runs: `headwater run` in the driver, on the JVM that spark-submit started."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts a script's own directory first, where `clock` and `errors` would be found by anybody's import.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
    from headwater.cli.main import main

    sys.exit(main(["run", *sys.argv[1:]]))
