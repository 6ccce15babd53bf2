"""Export: a selection of objects as files that anybody can read: raw bytes, rows, and where all of it comes from.

Reads   every table that tells of objects, as readers see them; the raw store
Writes  a directory: `raw/<path>`, `tables/<name>.parquet` or `.jsonl`, and `manifest.json` with the SHA-256 of each
Invariant: the directory appears whole, under its name, or not at all. The same selection of the same lake is the same
files, so a second export changes nothing; one that was killed leaves a hidden directory that the next one clears away.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from headwater.domain.modality import INLINE
from headwater.domain.pointer import Pointer
from headwater.domain.tables import EMBEDDINGS, EVENTS, TABLES, Table
from headwater.errors import Conflict, DataFault, HeadwaterError, InvalidRequest
from headwater.storage.query.reader import Answer, open_answer
from headwater.storage.raw.store import checked_key
from headwater.upkeep.lineage import verified_chunks
from headwater.upkeep.objects import Selection
from headwater.upkeep.parts import Parts
from headwater.upkeep.runs_table import labels_table

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST: Final = "manifest.json"
Form = Literal["parquet", "jsonl"]
_VERSION: Final = 1


@dataclass(slots=True)
class Exported:
    """What is in the directory. `missing` are objects whose bytes could not be had, each with why."""

    directory: str
    changed: bool = True
    objects: int = 0
    bytes: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    missing: list[dict[str, str]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        names = ("directory", "changed", "objects", "bytes", "rows", "missing")
        return {name: getattr(self, name) for name in names}


def export(
    parts: Parts, directory: Path, chosen: Selection, *, form: Form = "parquet", vectors: bool = False
) -> Exported:
    """Write what is chosen, and what was made of it by the models that are active. Conflict where something else is in
    the way: nothing but an export is ever replaced."""
    chosen.check()
    target = directory.absolute()
    before = _manifest_of(target)
    beside = target.with_name(f".{target.name}.part")
    with _cleared(beside):
        found, files = Exported(str(directory)), list[dict[str, Any]]()
        for table in TABLES:
            if table is not EMBEDDINGS or vectors:
                files.append(_write_rows(parts, beside, table, chosen, form, found))
        files.append(_write_labels(parts, beside, chosen, form, found))
        files += _write_objects(parts, beside, chosen, found)
        manifest = {"headwater_export": _VERSION, "selection": chosen.to_dict(), "form": form, "missing": found.missing}
        manifest["files"] = sorted(files, key=lambda file: str(file["path"]))
        if manifest == before:
            found.changed = False
            return found
        (beside / MANIFEST).write_text(json.dumps(manifest, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        _put_in_place(beside, target)
    return found


def _manifest_of(target: Path) -> Any:
    """Of the export that is there, if any is."""
    if not target.exists():
        return None
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        manifest = None
    if isinstance(manifest, dict) and "headwater_export" in manifest:
        _require_nothing_else(target, manifest)
        return manifest
    if target.is_dir() and not any(target.iterdir()):
        return None
    raise Conflict(f"{target} is there and is no export. Name a directory that is not there, or empty it.")


def _require_nothing_else(target: Path, manifest: dict[str, Any]) -> None:
    """What somebody laid beside it would go with the former export."""
    known = {MANIFEST, *(str(file["path"]) for file in manifest.get("files", ()))}
    found = (
        Path(folder, name).relative_to(target).as_posix() for folder, _, names in os.walk(target) for name in names
    )
    if strange := next((path for path in found if path not in known), None):
        raise Conflict(
            f"{target} also holds {strange}, which no export wrote. Move it away, or name another directory."
        )


@contextmanager
def _cleared(directory: Path) -> Iterator[None]:
    """A directory that is new, and gone in the end unless it was put in its place."""
    shutil.rmtree(directory, ignore_errors=True)
    try:
        (directory / "tables").mkdir(parents=True)
    except OSError as error:
        raise InvalidRequest(
            f"Nothing can be written to {directory.parent}: {error.strerror}. Name another."
        ) from error
    try:
        yield
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _put_in_place(beside: Path, target: Path) -> None:
    former = target.with_name(f".{target.name}.former")
    shutil.rmtree(former, ignore_errors=True)
    if target.exists():
        target.rename(former)
    beside.rename(target)
    shutil.rmtree(former, ignore_errors=True)


def _write_rows(
    parts: Parts, beside: Path, table: Table, chosen: Selection, form: Form, found: Exported
) -> dict[str, Any]:
    """In the order in which they came, some at a time."""
    query = f"SELECT * FROM {table.name} WHERE {_conditions(table, chosen)} ORDER BY seq"
    with open_answer(parts.reader, query, parts.book().hidden()) as answer:
        return _write_answer(beside, table.name, table.schema, answer, form, found)


def _write_labels(parts: Parts, beside: Path, chosen: Selection, form: Form, found: Exported) -> dict[str, Any]:
    """They are the ledger's, because they are added later."""
    labels = labels_table(parts.ledger)
    objects = f"SELECT object_id FROM {EVENTS.name} WHERE {' AND '.join(['true', *chosen.conditions()])}"
    query = f"SELECT * FROM labels WHERE object_id IN ({objects}) ORDER BY object_id, key"
    with open_answer(parts.reader, query, others={"labels": labels}) as answer:
        return _write_answer(beside, "labels", labels.schema, answer, form, found)


def _write_answer(
    beside: Path, name: str, schema: "pa.Schema", answer: Answer, form: Form, found: Exported
) -> dict[str, Any]:
    path, count = f"tables/{name}.{form}", 0
    if form == "jsonl":
        with (beside / path).open("w", encoding="utf-8") as file:
            for rows in answer.rows:
                count += len(rows)
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        count = _write_parquet(beside / path, schema, answer)
    found.rows[name] = count
    return {"path": path, "rows": count, **_digest(beside / path)}


def _conditions(table: Table, chosen: Selection) -> str:
    """Which rows; a table that does not tell of threads has those of the thread's objects."""
    conditions = chosen.conditions()
    if (chosen.thread is not None or chosen.where) and "thread" not in table.schema.names:
        conditions = [f"object_id IN (SELECT object_id FROM {EVENTS.name} WHERE {' AND '.join(conditions)})"]
    return " AND ".join(["true", *conditions])


def _write_parquet(path: Path, schema: "pa.Schema", answer: Answer) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    there, count = pa.schema([field for field in schema if field.name in answer.columns]), 0
    with pq.ParquetWriter(path, there) as writer:
        for rows in answer.rows:
            count += len(rows)
            writer.write_table(_arrow(rows, there))
    return count


def _arrow(rows: list[dict[str, Any]], schema: "pa.Schema") -> "pa.Table":
    """Times came as text, as JSON has them."""
    import pyarrow as pa

    from headwater.clock import parse_time

    times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    made = [{**row, **{name: parse_time(row[name]) for name in times if row.get(name)}} for row in rows]
    return pa.Table.from_pylist(made, schema)


def _write_objects(parts: Parts, beside: Path, chosen: Selection, found: Exported) -> Iterator[dict[str, Any]]:
    """The bytes of each, held against their checksum; a chat message is in its event."""
    inline = ", ".join(f"'{one}'" for one in sorted(INLINE))
    conditions = ["first_of_object", *chosen.conditions()]
    query = f"SELECT pointer, modality IN ({inline}) AS inline FROM {EVENTS.name} WHERE {' AND '.join(conditions)}"
    with open_answer(parts.reader, f"{query} ORDER BY seq") as answer:
        for row in (row for rows in answer.rows for row in rows):
            found.objects += 1
            if not row["inline"] and (file := _write_object(parts, beside, row["pointer"], found)):
                yield file


def _write_object(parts: Parts, beside: Path, pointer: dict[str, Any], found: Exported) -> dict[str, Any] | None:
    path = f"raw/{pointer['path']}"
    try:
        checked_key(pointer["path"])
        (beside / path).parent.mkdir(parents=True, exist_ok=True)
        with (beside / path).open("wb") as file:
            for chunk in verified_chunks(parts.raw_store, Pointer.from_dict(pointer)):
                found.bytes += file.write(chunk)
    except (HeadwaterError, OSError) as error:
        (beside / path).unlink(missing_ok=True)
        reason = error.reason if isinstance(error, DataFault) else type(error).__name__
        found.missing.append({"path": pointer["path"], "reason": reason, "message": str(error)})
        return None
    return {"path": path, **_digest(beside / path)}


def _digest(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
