"""Daft: files by glob, downloaded and mapped row by row, Parquet out. What is done is anti-joined by hand, since Daft's
own checkpoints need the Ray runner."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import daft
import pyarrow.parquet as pq
from daft import DataType, col
from daft.functions import download, regexp_extract

from peers import job

FACTS = DataType.struct(
    {"text": DataType.string(), **{name: DataType.int64() for name in job.FIELDS[1:]}},
)


@daft.func(return_dtype=FACTS, unnest=True)  # type: ignore[untyped-decorator]
def facts(name: str, data: bytes) -> Any:
    return job.facts(name, data)


@daft.func(return_dtype=FACTS, unnest=True)  # type: ignore[untyped-decorator]
def changed_facts(name: str, data: bytes) -> Any:
    return job.facts(name, data, changed=True)


@daft.func(return_dtype=DataType.struct({"text": DataType.string()}), unnest=True)  # type: ignore[untyped-decorator]
def message(line: str) -> Any:
    return {"text": job.message(line)["text"]}


def update(inbox: Path, state: Path) -> None:
    for kind in ("calls", "pictures"):
        files = _without(_files(inbox / kind), state / kind)
        files.select("id", facts(col("id"), download(col("path")))).write_parquet(str(state / kind))
    lines = daft.read_text(str(inbox / "chat" / "*.txt"))
    lines = lines.select(col("text").alias("line"), ("chat-" + regexp_extract(col("text"), "^[0-9]+")).alias("id"))
    _without(lines, state / "chat").select("id", message(col("line"))).write_parquet(str(state / "chat"))


def change(inbox: Path, state: Path) -> None:
    made = _files(inbox / "calls").select("id", changed_facts(col("id"), download(col("path"))))
    made.write_parquet(str(state / "calls"), write_mode="overwrite")


def rows(state: Path) -> Iterator[job.Row]:
    for kind in ("calls", "pictures", "chat"):
        yield from job.records(pq.read_table(state / kind))


def _files(directory: Path) -> daft.DataFrame:
    found = daft.from_glob_path(f"{directory}/*")
    return found.select("path", regexp_extract(col("path"), "[^/]+$").alias("id"))


def _without(new: daft.DataFrame, place: Path) -> daft.DataFrame:
    if not place.exists():
        return new
    return new.join(daft.read_parquet(f"{place}/*.parquet").select("id"), on="id", how="anti")
