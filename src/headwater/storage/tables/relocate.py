"""Relocate: an Iceberg table's files under another location; rows, snapshots, branches and tags arrive as they are.

Metadata names every file by its whole path. Data files are copied byte by byte; manifests, manifest lists and metadata
files are written anew with the paths replaced, and with the same ids and sequence numbers. No JVM is needed.
Spark's `rewrite_table_path` does the same for one spelling of the source's prefix; a table here has two, because Spark
writes `file:/a` where PyIceberg writes `file:///a`.
Twice is once: a data file that is there with its size is not copied again, everything else is overwritten by the same.
"""

import gzip
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headwater.errors import Conflict, DataFault, Unavailable
from headwater.settings import Settings
from headwater.storage.io.local_path import local_path
from headwater.storage.io.s3 import S3Target, is_s3
from headwater.storage.tables.catalog import warehouse_uri

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

COPIES_AT_ONCE: Final = 8  # an object store answers slowly and to many
_CHUNK_BYTES: Final = 4 << 20
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class TableFiles:
    """What the retained snapshots of a table consist of. `copied` are data and statistics files, with their sizes."""

    metadata: tuple[str, ...]
    lists: tuple[str, ...]
    manifests: tuple[str, ...]
    copied: Mapping[str, int]

    @property
    def count(self) -> int:
        return len(self.metadata) + len(self.lists) + len(self.manifests) + len(self.copied)


def list_table_files(table: "Table") -> TableFiles:
    """Reads metadata alone; Conflict where a table has delete files, whose content would have to be rewritten too."""
    manifests: dict[str, ManifestFile] = {}
    for snapshot in table.metadata.snapshots:
        manifests.update((manifest.manifest_path, manifest) for manifest in snapshot.manifests(table.io))
    copied = {name: size for manifest in manifests.values() for name, size in _live_files(table, manifest)}
    statistics = [*table.metadata.statistics, *table.metadata.partition_statistics]
    copied |= {each.statistics_path: each.file_size_in_bytes for each in statistics}
    log = [entry.metadata_file for entry in table.metadata.metadata_log]
    kept = [name for name in log if table.io.new_input(name).exists()]
    lists = tuple(snapshot.manifest_list for snapshot in table.metadata.snapshots)
    return TableFiles((*kept, table.metadata_location), lists, tuple(manifests), copied)


def open_warehouse(settings: Settings) -> "ObjectStore":
    """Where tables' files are written. Not through PyIceberg: obstore asks again where a request failed."""
    from obstore.store import LocalStore

    uri = warehouse_uri(settings)
    if is_s3(uri):
        target = S3Target.from_settings(uri, settings, "catalog.warehouse")
        return target.store(target.session())
    return LocalStore(local_path(uri), mkdir=True)


def relocate(
    table: "Table", files: TableFiles, target: "ObjectStore", warehouse: str, path: str, copied: Callable[[int], None]
) -> str:
    """Copy a table to `path` in a warehouse; returns where its current metadata file is there, ready to be registered.

    `copied` hears the bytes of each data file that has arrived.
    """
    from obstore.exceptions import BaseError

    move = _Move(table.location(), warehouse.rstrip("/"), path, table.io, target)
    try:
        move.copy_all(files, copied)
    except BaseError as error:
        raise Unavailable(f"{warehouse} did not take a file: {str(error).splitlines()[0][:200]}. Try again.") from error
    names = (*files.copied, *files.manifests, *files.lists, *files.metadata)
    _sync(map(move.name, names))
    return move.name(table.metadata_location)


@dataclass(frozen=True, slots=True)
class _Move:
    before: str
    warehouse: str
    path: str
    source: "FileIO"
    target: "ObjectStore"

    def copy_all(self, files: TableFiles, copied: Callable[[int], None]) -> None:
        """Metadata last: what it names is there."""
        for batch in _in_batches(files.copied.items()):
            with ThreadPoolExecutor(COPIES_AT_ONCE) as workers:
                for size in workers.map(lambda file: self.copy(*file), batch):
                    copied(size)
        lengths = {name: self.rewrite_manifest(name) for name in files.manifests}
        for name in files.lists:
            self.rewrite_list(name, lengths)
        for name in files.metadata:
            self.rewrite_metadata(name, {*files.metadata})

    def name(self, path: str) -> str:
        return f"{self.warehouse}/{self.key(path)}"

    def key(self, path: str) -> str:
        """In the target's store."""
        prefix = _plain(self.before) + "/"
        if not _plain(path).startswith(prefix):
            raise Conflict(f"{path} belongs to a table at {self.before} but lies elsewhere; it cannot be moved along.")
        return f"{self.path}/{_plain(path).removeprefix(prefix)}"

    def copy(self, path: str, size: int) -> int:
        if self._size_of(path) != size:
            with self.source.new_input(path).open() as reading:
                self.target.put(self.key(path), iter(lambda: reading.read(_CHUNK_BYTES), b""))
            if (written := self._size_of(path)) != size:
                raise DataFault("CORRUPT", f"{path} has {written} bytes; its manifest says {size}.")
        return size

    def rewrite_manifest(self, path: str) -> int:
        """The length that it has now: it stands in the manifest lists."""

        def change(entry: Any, schema: "Schema") -> None:
            file = entry[_position(schema.as_struct(), "data_file")]
            at = _position(schema.find_field("data_file").field_type, "file_path")
            file[at] = self.name(file[at])

        return self._rewrite_avro(path, "manifest_entry", change)

    def rewrite_list(self, path: str, lengths: Mapping[str, int]) -> None:
        def change(manifest: Any, schema: "Schema") -> None:
            at = _position(schema.as_struct(), "manifest_path")
            name = manifest[at]
            manifest[at], manifest[_position(schema.as_struct(), "manifest_length")] = self.name(name), lengths[name]

        self._rewrite_avro(path, "manifest_file", change)

    def rewrite_metadata(self, path: str, known: set[str]) -> None:
        with self.source.new_input(path).open() as reading:
            data = reading.read()
        packed = data.startswith(_GZIP)
        document: dict[str, Any] = json.loads(gzip.decompress(data) if packed else data)
        self._rename_in(document, known)
        text = json.dumps(document).encode()
        self.target.put(self.key(path), gzip.compress(text) if packed else text)

    def _rename_in(self, document: dict[str, Any], known: set[str]) -> None:
        document["location"] = f"{self.warehouse}/{self.path}"
        for snapshot in document.get("snapshots", []):
            snapshot["manifest-list"] = self.name(snapshot["manifest-list"])
        for kind in ("statistics", "partition-statistics"):
            for statistics in document.get(kind, []):
                statistics["statistics-path"] = self.name(statistics["statistics-path"])
        # Files that were deleted since have nothing to point to.
        log = [entry for entry in document.get("metadata-log", []) if entry["metadata-file"] in known]
        document["metadata-log"] = [{**entry, "metadata-file": self.name(entry["metadata-file"])} for entry in log]

    def _rewrite_avro(self, path: str, kind: str, change: Callable[[Any, "Schema"], None]) -> int:
        from pyiceberg.avro.file import AvroFile, AvroOutputFile

        with AvroFile[Any](self.source.new_input(path)) as reading:
            schema, meta, records = reading.schema, dict(reading.header.meta), list(reading)
        for record in records:
            change(record, schema)
        meta.pop("avro.schema")
        memory: Any = _Memory()
        with AvroOutputFile[Any](memory, schema, kind, metadata=meta) as writing:
            writing.write_block(records)
            data = memory.getvalue()
        self.target.put(self.key(path), data)
        return len(data)

    def _size_of(self, path: str) -> int | None:
        try:
            return self.target.head(self.key(path))["size"]
        except FileNotFoundError:
            return None


class _Memory(io.BytesIO):
    """What PyIceberg takes for a file: it is asked for a stream, and is one."""

    def create(self, overwrite: bool = False) -> "_Memory":
        return self


def _live_files(table: "Table", manifest: "ManifestFile") -> list[tuple[str, int]]:
    from pyiceberg.manifest import DataFileContent

    files = [entry.data_file for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)]
    if any(file.content == DataFileContent.POSITION_DELETES for file in files):
        raise Conflict(f"{'.'.join(table.name())} has delete files, which name paths inside. Rewrite its data first.")
    return [(file.file_path, file.file_size_in_bytes) for file in files]


def _plain(path: str) -> str:
    """One spelling for a place: local paths without a scheme, S3 with the one that PyIceberg uses."""
    return re.sub("^s3[an]://", "s3://", local_path(path)).rstrip("/")


def _sync(locations: Iterable[str]) -> None:
    """An object store keeps what it has answered for; a file system only what it was told to sync."""
    paths = [path for path in map(local_path, locations) if path.startswith("/")]
    for path in (*paths, *{os.path.dirname(path) for path in paths}):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _position(struct: Any, name: str) -> int:
    return next(position for position, field in enumerate(struct.fields) if field.name == name)


def _in_batches(files: Iterable[tuple[str, int]], size: int = 256) -> Iterable[list[tuple[str, int]]]:
    listed = [*files]
    return (listed[start : start + size] for start in range(0, len(listed), size))
