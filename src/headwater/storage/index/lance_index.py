"""The vector index in LanceDB, in a directory or on S3: a table for each embedder's fingerprint.

A note beside the tables says how far the index has followed silver.embeddings and how many entries it then had, so
that neither question loads LanceDB. Entries are found from the moment they are written: small tables are searched
whole, and past `ANN_ROWS` the tail that the approximate index does not cover yet is still searched row by row.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Conflict, HeadwaterError, InvalidRequest, Unavailable
from headwater.settings import Settings
from headwater.storage.index.lance_conflict import again_after_conflict, unless_conflict
from headwater.storage.index.lance_connection import connect_lance
from headwater.storage.index.lance_entries import (
    dimension_of,
    last_of_each,
    schema_of,
    to_entries,
    wrong_length,
)
from headwater.storage.index.lance_filter import any_of, quoted
from headwater.storage.index.lance_optimize import organise
from headwater.storage.index.lance_query import AS_CUT, find
from headwater.storage.index.sample import NOTHING, Sample, places
from headwater.storage.index.vector_index import ANYTHING, Candidate, Entry, Filter, Terms, Vector
from headwater.storage.io.conditional_put import require_conditional_put
from headwater.storage.io.s3 import S3Target, is_s3, one_spelling

if TYPE_CHECKING:
    from lancedb.db import DBConnection
    from lancedb.table import Table
    from obstore import ListResult, ObjectMeta
    from obstore.store import ObjectStore

# What LanceDB and the object store under it write into a ValueError that is none.
_LOST: Final = ("Failed to connect", "Generic {", "IO {", "RetryError")
_PREFIX: Final = "text_"
_NOTE: Final = "position.json"
T = TypeVar("T")


class LanceIndex:
    """A `VectorIndex`."""

    def __init__(self, uri: str, settings: Settings) -> None:
        self._uri = one_spelling(uri)
        self._target = S3Target.from_settings(uri, settings, "index.uri") if is_s3(uri) else None
        self._cache_bytes = settings.whole("index.cache_mb") << 20
        self._tables: dict[str, Table] = {}
        self._samples: dict[tuple[str, frozenset[str]], Sample] = {}

    def prepare(self) -> None:
        with suppress(Exception):  # the first use will say what is wrong
            _ = self._database

    def upsert(self, rows: pa.Table) -> None:
        require_conditional_put(self._target, "index.uri")
        for fingerprint in pc.unique(rows["fingerprint"]).to_pylist():
            part = to_entries(last_of_each(rows.filter(pc.equal(rows["fingerprint"], fingerprint))))
            with self._translated():
                table = self._table(fingerprint) or self._create(fingerprint, dimension_of(part.schema))
                if table.schema.field("vector").type != part.schema.field("vector").type:
                    raise InvalidRequest(wrong_length(dimension_of(part.schema), dimension_of(table.schema)))
                again_after_conflict(partial(_merge, table, part))

    def search(self, fingerprint: str, probe: Vector | Terms, k: int, only: Filter = ANYTHING) -> list[Entry]:
        [found] = self.candidates(fingerprint, [probe], k, only)
        return [one.shown() for one in found]

    def candidates(
        self, fingerprint: str, probes: Sequence[Vector | Terms], k: int, only: Filter = ANYTHING
    ) -> list[list[Candidate]]:
        return self._answered(fingerprint, lambda: self._candidates(fingerprint, probes, k, only))

    def sample(self, fingerprint: str, hidden: frozenset[str] = frozenset()) -> Sample:
        return self._answered(fingerprint, lambda: self._sample(fingerprint, hidden))

    def _answered(self, fingerprint: str, ask: Callable[[], T]) -> T:
        """Asked once more where its table was wiped meanwhile."""
        with self._translated():
            try:
                return ask()
            except HeadwaterError:
                raise
            except Exception:
                if not self._is_gone(fingerprint):
                    raise
                return ask()

    def _candidates(
        self, fingerprint: str, probes: Sequence[Vector | Terms], k: int, only: Filter
    ) -> list[list[Candidate]]:
        table = self._table(fingerprint)
        if table is None:
            self._refuse_if_others(fingerprint)
            return [[] for _ in probes]
        return find(table, probes, k, only)

    def _sample(self, fingerprint: str, hidden: frozenset[str]) -> Sample:
        table = self._table(fingerprint)
        entries = 0 if table is None else table.count_rows()
        if table is None or not entries:
            return NOTHING
        known = self._samples.get((fingerprint, hidden))
        if known is None or known.has_outgrown(entries):
            drawn = table.take_offsets(places(entries)).select(["terms", "vector", "source_fingerprint"]).to_arrow()
            known = self._samples[fingerprint, hidden] = Sample.of(drawn, entries, hidden)
        return known

    def _is_gone(self, fingerprint: str) -> bool:
        """Whether a table that this one has open was wiped by another process; then it is opened no longer."""
        if _PREFIX + fingerprint in self._table_names():
            return False
        self._tables.pop(fingerprint, None)  # a search beside this one may have found out first
        return True

    def delete(self, chunk_ids: Collection[str] | None) -> None:
        if chunk_ids is None:
            self._wipe()
        elif chunk_ids:
            with self._translated():
                for table in self._all_tables():
                    again_after_conflict(partial(table.delete, any_of("chunk_id", chunk_ids)))
            self.set_position(self.position())

    def drop(self, fingerprint: str) -> None:
        with self._translated():
            if self._table(fingerprint) is not None:
                self._database.drop_table(_PREFIX + fingerprint)
                self._tables.pop(fingerprint, None)
            for table in self._all_tables():
                again_after_conflict(partial(table.delete, f"source_fingerprint = {quoted(fingerprint)}"))
        self.set_position(self.position())

    def present(self, chunk_ids: Collection[str]) -> set[str]:
        if not chunk_ids:
            return set()
        with self._translated():
            return {
                chunk_id
                for table in self._all_tables()
                for chunk_id in _rows(table, any_of("chunk_id", chunk_ids), len(chunk_ids))
            }

    def count(self) -> int:
        return int(self._note().get("entries", 0))

    def position(self) -> int:
        return int(self._note().get("position", 0))

    def identity(self) -> str:
        return str(self._note().get("id", ""))

    def set_position(self, seq: int, identity: str | None = None) -> None:
        import obstore

        known = self.identity() if identity is None else identity
        with self._translated():
            entries = sum(table.count_rows() for table in self._all_tables())
            note = {"position": seq, "entries": entries, "id": known}
            obstore.put(self._store, _NOTE, json.dumps(note).encode())

    def optimise(self) -> None:
        with self._translated():
            for table in self._all_tables():
                unless_conflict(partial(self._organise, table))

    def _organise(self, table: "Table") -> None:
        try:
            organise(table)
        except Exception:
            # Wiped, or retired, by the run beside us: then there is nothing to organise.
            if table.name in self._table_names():
                raise

    @cached_property
    def _database(self) -> "DBConnection":
        if self._target is not None:  # LanceDB asks for twenty seconds before it says that nobody is there
            self._listed()
        return connect_lance(self._uri, self._target.lance() if self._target else None, self._cache_bytes)

    @cached_property
    def _store(self) -> "ObjectStore":
        from obstore.store import LocalStore

        if self._target is None:
            return LocalStore(self._uri, mkdir=True)
        return self._target.store(self._target.session())

    def _note(self) -> dict[str, Any]:
        """Empty where the tables are gone, whatever the note says: the index then starts again."""
        import obstore

        with self._translated():
            listed = self._listed()
            if not _names_in(listed):
                self._tables.clear()  # somebody wiped it under us
                return {}
            if not any(str(item["path"]).endswith(_NOTE) for item in listed["objects"]):
                return {}
            with suppress(ValueError):  # a damaged note is none, too: the index follows from the beginning
                note: dict[str, Any] = json.loads(bytes(obstore.get(self._store, _NOTE).bytes()))
                return note
            return {}

    def _listed(self) -> "ListResult[Sequence[ObjectMeta]]":
        import obstore

        if self._target is None and Path(self._uri).is_file():  # a listing of it would be an empty one
            raise NotADirectoryError(f"{self._uri} is a file")
        return obstore.list_with_delimiter(self._store)

    def _all_tables(self) -> "list[Table]":
        prints = [name.removeprefix(_PREFIX) for name in self._table_names()]
        return [table for fingerprint in prints if (table := self._table(fingerprint)) is not None]

    def _table_names(self) -> list[str]:
        """As the folders say it: LanceDB's own list comes by a client that takes longer to load than a search."""
        return _names_in(self._listed())

    def _table(self, fingerprint: str) -> "Table | None":
        if fingerprint not in self._tables:
            if _PREFIX + fingerprint not in self._table_names():
                return None
            self._tables[fingerprint] = self._database.open_table(_PREFIX + fingerprint)
        return self._tables[fingerprint]

    def _refuse_if_others(self, fingerprint: str) -> None:
        """Vectors of two models are never compared: their numbers mean different things."""
        held = [table.name.removeprefix(_PREFIX) for table in self._all_tables()]
        # A run may be making its table at this very moment: then it is empty, and no other's.
        if held and fingerprint not in held:
            raise Conflict(
                f"The index holds vectors of {', '.join(held)}, none of {fingerprint}. Embed anew with: headwater run"
            )

    def _create(self, fingerprint: str, dimension: int) -> "Table":
        if not fingerprint.isalnum():
            raise InvalidRequest(f"A fingerprint is letters and digits, not {fingerprint!r}.")
        from lancedb.index import FTS, Bitmap

        table = self._database.create_table(_PREFIX + fingerprint, schema=schema_of(dimension), exist_ok=True)
        # A search by words needs the index to be there; rows that it does not cover yet are found all the same.
        again_after_conflict(partial(_index_once, table, "terms", FTS(**AS_CUT), "terms"))
        # A handful of values: which model made the text is asked of every hit once there are two.
        again_after_conflict(partial(_index_once, table, "source_fingerprint", Bitmap(), "source"))
        self._tables[fingerprint] = table
        return table

    def _wipe(self) -> None:
        import obstore

        with self._translated():
            if self._note():
                obstore.delete(self._store, _NOTE)
            self._database.drop_all_tables()
            self._tables.clear()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """LanceDB raises plain RuntimeError, OSError and ValueError, obstore errors of its own; here they become ours.

        Tables are opened anew afterwards: what was open may have been wiped, or replaced by a copy.
        """
        try:
            yield
        except HeadwaterError:
            raise
        except Exception as error:
            if not is_outage(error):
                raise
            self._tables.clear()
            raise Unavailable(f"The index at {self._uri} did not answer: {_first_line(error)}. Try again.") from error


def is_outage(error: Exception) -> bool:
    """Whether it is the place of the index that failed, and not what was asked of it."""
    from obstore.exceptions import BaseError

    # To LanceDB a store that does not answer while it connects is an "invalid input".
    lost = isinstance(error, ValueError) and any(words in str(error) for words in _LOST)
    return lost or isinstance(error, RuntimeError | OSError | BaseError)


def _names_in(listed: "ListResult[Sequence[ObjectMeta]]") -> list[str]:
    folders = (path.rstrip("/").rpartition("/")[2] for path in listed["common_prefixes"])
    return [name for folder in folders if (name := folder.removesuffix(".lance")).startswith(_PREFIX)]


def _first_line(error: Exception) -> str:
    """One line: what a library prints for its developers goes on for pages."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300].rstrip(". ")


def _index_once(table: "Table", column: str, config: Any, name: str) -> None:
    if name not in {index.name for index in table.list_indices()}:
        table.create_index(column, config=config, name=name)


def _merge(table: "Table", part: pa.Table) -> None:
    known = part.select(table.schema.names)  # a table that was made before a column does without it
    table.merge_insert("chunk_id").when_matched_update_all().when_not_matched_insert_all().execute(known)


def _rows(table: "Table", condition: str, limit: int) -> list[str]:
    found = table.search().where(condition).select(["chunk_id"]).limit(limit).to_arrow()
    ids: list[str] = found["chunk_id"].to_pylist()
    return ids
