"""Chromium for the tests of the web face: the distribution's. Called as a program, it is installed where we may."""

import os
import shutil
import subprocess
import sys

INSTALL_SECONDS = 600
MISSING = "Chromium is missing, so no page is looked at in a browser: apt-get install chromium"


def find() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def install() -> None:
    """Once; as root on Debian and its kin. Elsewhere tests skip with a sentence."""
    if find() or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    print("  Installing Chromium with apt-get (once)", file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for line in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        subprocess.run(
            ["apt-get", "-q", *line], check=False, capture_output=True, env=environment, timeout=INSTALL_SECONDS
        )


if __name__ == "__main__":
    install()
    if find() is None:
        print(MISSING, file=sys.stderr)
