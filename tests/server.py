"""`headwater serve` on a lake, in a process of its own, for tests that come in by HTTP or by a browser."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from headwater import lake as lakes


@dataclass
class Served:
    """`token` is the admin's, of the link that was printed."""

    directory: Path
    address: str
    token: str
    process: "subprocess.Popen[str]"

    @property
    def link(self) -> str:
        return f"{self.address}/?token={self.token}"

    @property
    def host(self) -> str:
        return self.address.removeprefix("http://")

    def make_token(self, role: str = "reader", **about: Any) -> dict[str, Any]:
        with lakes.open(self.directory) as lake:
            return lake.access.make(role, **about)

    def client(self, token: str | None = None, **about: Any) -> httpx.Client:
        """As a program comes. Without a token it is nobody."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.address, headers=headers, timeout=60, **about)

    def browser(self, token: str, **headers: str) -> httpx.Client:
        """As a page of ours comes: by cookie, saying where it began."""
        told = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin", "Origin": self.address, **headers}
        cookies = {"headwater_token": token}
        return httpx.Client(base_url=self.address, headers=told, cookies=cookies, timeout=60)

    def audit(self) -> list[dict[str, Any]]:
        with lakes.open(self.directory) as lake:
            return lake.access.audit(limit=10_000)


@contextmanager
def serving(directory: Path, *options: str, **environment: str) -> Iterator[Served]:
    """Until the block ends."""
    errors = directory / "serve.stderr"
    with errors.open("w") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "headwater", "--lake", str(directory), "--json", "serve", "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
            env={**os.environ, **environment},
        )
    try:
        said = _first_document(process)
        assert "address" in said, f"{said} it ended before it answered: {errors.read_text()}"
        yield Served(directory, said["address"], said["token"], process)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _first_document(process: "subprocess.Popen[str]") -> dict[str, str]:
    assert process.stdout
    text = ""
    for line in process.stdout:
        text += line
        try:
            found: dict[str, str] = json.loads(text)
        except ValueError:
            continue
        return found
    return {}
