"""The floor: plain Python, a pool of two processes, Parquet. What is done is known by the ids that are there."""

import multiprocessing
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from peers import job

SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string()), *((name, pa.int64()) for name in job.FIELDS[1:])])


def update(inbox: Path, state: Path) -> None:
    work: list[tuple[Path, list[Any], bool]] = []
    for kind in ("calls", "pictures"):
        known = _known(state / kind)
        files = sorted(file for file in (inbox / kind).iterdir() if file.name not in known)
        work += [(state / kind, part, False) for part in _parts(files, 100)]
    known = _known(state / "chat")
    lines = [line for file in sorted((inbox / "chat").iterdir()) for line in file.read_text().splitlines()]
    new = [line for line in lines if job.message_id(line) not in known]
    work += [(state / "chat", part, False) for part in _parts(new, 5_000)]
    _derive(work)


def change(inbox: Path, state: Path) -> None:
    fresh = state / "calls-changed"
    _derive([(fresh, part, True) for part in _parts(sorted((inbox / "calls").iterdir()), 100)])
    shutil.rmtree(state / "calls")
    fresh.rename(state / "calls")


def rows(state: Path) -> Iterator[job.Row]:
    for kind in ("calls", "pictures", "chat"):
        yield from job.records(pq.read_table(state / kind))


def _known(place: Path) -> set[str]:
    return set(pq.read_table(place, columns=["id"])["id"].to_pylist()) if place.exists() else set()


def _parts(items: Sequence[Any], size: int) -> list[list[Any]]:
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


def _derive(work: list[tuple[Path, list[Any], bool]]) -> None:
    if not work:
        return
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for place, table in pool.imap_unordered(_part, work):
            place.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, place / f"{uuid4()}.parquet", compression="zstd")


def _part(part: tuple[Path, list[Any], bool]) -> tuple[Path, pa.Table]:
    place, items, changed = part
    if isinstance(items[0], str):
        made = [job.message(line) for line in items]
    else:
        made = [{"id": file.name, **job.facts(file.name, file.read_bytes(), changed)} for file in items]
    return place, pa.Table.from_pylist(made, SCHEMA)
