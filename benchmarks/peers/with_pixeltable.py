"""Pixeltable: a table for each kind, features as a computed column, new files inserted; a changed step replaces the
column. Its embedded Postgres is part of what is measured."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixeltable as pxt

from peers import job

TABLES = {"calls": pxt.Audio, "pictures": pxt.Image}


@pxt.udf  # type: ignore[untyped-decorator]
def facts(path: str) -> pxt.Json:
    return job.facts(path, Path(path).read_bytes())


@pxt.udf  # type: ignore[untyped-decorator]
def changed_facts(path: str) -> pxt.Json:
    return job.facts(path, Path(path).read_bytes(), changed=True)


@pxt.udf  # type: ignore[untyped-decorator]
def message(line: str) -> pxt.Json:
    return job.message(line)


def update(inbox: Path, state: Path) -> None:
    for kind, media in TABLES.items():
        table = _table(kind, {"id": pxt.String, "media": media})
        known = set(_column(table, "id"))
        new = [file for file in sorted((inbox / kind).iterdir()) if file.name not in known]
        if new:
            table.insert([{"id": file.name, "media": str(file.absolute())} for file in new])
    table = _table("chat", {"id": pxt.String, "line": pxt.String})
    known = set(_column(table, "id"))
    lines = [line for file in sorted((inbox / "chat").iterdir()) for line in file.read_text().splitlines()]
    rows = [{"id": job.message_id(line), "line": line} for line in lines]
    if new_rows := [row for row in rows if row["id"] not in known]:
        table.insert(new_rows)


def change(inbox: Path, state: Path) -> None:
    table = pxt.get_table("calls")
    table.add_computed_column(facts=changed_facts(table.media.localpath), if_exists="replace")


def rows(state: Path) -> Iterator[job.Row]:
    for kind in (*TABLES, "chat"):
        table = pxt.get_table(kind)
        for row in table.select(table.id, table.facts).collect():
            yield (row["id"], *(row["facts"].get(name) for name in job.FIELDS))


def _table(name: str, columns: dict[str, Any]) -> Any:
    if name in pxt.list_tables():
        return pxt.get_table(name)
    # The step decodes the file itself: checking it on insert too would decode it twice.
    table = pxt.create_table(name, columns, primary_key="id", media_validation="on_read")
    computed = message(table.line) if name == "chat" else facts(table.media.localpath)
    table.add_computed_column(facts=computed)
    return table


def _column(table: Any, name: str) -> list[str]:
    return [row[name] for row in table.select(getattr(table, name)).collect()]
