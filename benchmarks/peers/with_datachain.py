"""DataChain: a dataset for each kind, two processes, and its own delta updates, as its guide on delta advises."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datachain as dc
from datachain import File
from pydantic import BaseModel

from peers import job


class Facts(BaseModel):
    text: str
    duration_ms: int | None = None
    width: int | None = None
    height: int | None = None


class Message(BaseModel):
    path: str
    id: str
    text: str


def facts(file: File) -> Facts:
    return Facts(**job.facts(file.name, file.read()))


def changed_facts(file: File) -> Facts:
    return Facts(**job.facts(file.name, file.read(), changed=True))


def messages(file: File) -> Iterator[Message]:
    for line in file.read().decode().splitlines():
        yield Message(path=file.path, **job.message(line))


def update(inbox: Path, state: Path) -> None:
    for kind in ("calls", "pictures"):
        _files(inbox / kind, delta=True, delta_on="file.path").map(facts=facts).save(kind)
    lines = _files(inbox / "chat", delta=True, delta_on="file.path", delta_result_on="message.path")
    lines.gen(message=messages).save("chat")


def change(inbox: Path, state: Path) -> None:
    """A new version of the dataset: delta looks at files, not at functions, so it stays out."""
    _files(inbox / "calls").map(facts=changed_facts).save("calls")


def rows(state: Path) -> Iterator[job.Row]:
    for kind in ("calls", "pictures"):
        for path, *found in dc.read_dataset(kind).to_list("file.path", *(f"facts.{name}" for name in job.FIELDS)):
            yield (os.path.basename(path), *found)
    for name, text in dc.read_dataset("chat").to_list("message.id", "message.text"):
        yield (name, text, None, None, None)


def _files(directory: Path, **delta: Any) -> dc.DataChain:
    return dc.read_storage(directory.absolute().as_uri(), update=True, **delta).settings(parallel=2)
