"""Shell completion as docs/install.md tells it."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "install.md"


def test_the_line_in_the_docs_completes_commands_in_bash(tmp_path: Path) -> None:
    (line,) = re.findall(r"^eval .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    program = tmp_path / "headwater"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m headwater "$@"\n', encoding="ascii")
    program.chmod(0o755)
    script = f"""
        {line}
        COMP_WORDS=(headwater do) COMP_CWORD=1
        _headwater_completion headwater do headwater
        echo "${{COMPREPLY[@]}}"
        complete -p headwater
    """
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, check=False, capture_output=True, text=True)
    first, registered = done.stdout.splitlines()[:2]
    assert {"doctor", "down"} == set(first.split()), done.stderr
    assert "-F _headwater_completion" in registered
