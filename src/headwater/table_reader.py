"""One table of a lake in the form that its reader works with: Arrow, pandas, DuckDB or Spark."""

from typing import TYPE_CHECKING, Any, Final

from headwater.components import Components
from headwater.domain import tables
from headwater.domain.ref import Ref
from headwater.errors import NotFound
from headwater.storage.tables.metadata import MAIN

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headwater.storage.tables.resolve_ref import SnapshotRead
    from headwater.storage.tables.time_travel import TablesAt

_SHOWN: Final = 10


class TableReader:
    """One table: `lake.table("transcripts").to_pandas()`. `hidden` are models that are not active.

    With a ref it is what the table was then, in the columns that it had then; each call looks the ref up anew.
    """

    def __init__(
        self, components: Components, table: tables.Table, hidden: frozenset[str], as_of: Ref | None = None
    ) -> None:
        self._parts = components
        self._hidden = hidden
        self._as_of = as_of
        self.table = table

    @property
    def snapshot(self) -> "SnapshotRead":
        """The one that is read: its id and when it was committed. NotFound where the table has none."""
        return self._at(self._as_of or Ref(name=MAIN)).snapshots[0]

    def about(self) -> "dict[str, Any]":
        """What it is made of: columns, snapshots, files by size beside what maintenance aims at. By metadata alone."""
        from headwater.upkeep.table_view import view_table

        read = self._at(self._as_of) if self._as_of else self._parts.reader
        return view_table(read, self._parts.settings, self.table)

    def to_arrow(self) -> "pa.Table":
        from headwater.storage.query.reader import scan, seen

        tables_read = self._at(self._as_of) if self._as_of else self._parts.reader
        return seen(scan(tables_read, self.table.name), self.table, self._hidden)

    def page(self, *, limit: int = 100, before: int | None = None, vectors: bool = False) -> "pa.Table":
        """The newest rows, the newest first; those of a `seq` below `before` follow on. Without vectors unless they are
        asked for. Rows that arrive meanwhile are newer, so that page after page has each row once."""
        from headwater.storage.query.pages import newest_below

        tables_read = self._at(self._as_of) if self._as_of else self._parts.reader
        columns = [name for name in self.table.schema.names if vectors or name != "vector"]
        return newest_below(tables_read, self.table, columns, limit, before, self._hidden)

    def to_pandas(self) -> "pd.DataFrame":
        return self.to_arrow().to_pandas()

    def to_duckdb(self) -> "duckdb.DuckDBPyRelation":
        """A relation to go on querying; its connection has the other tables as views too.

        With a ref it has those only where the ref names a state of all of them, as a time does.
        """
        from headwater.storage.query.reader import duck

        if self._as_of is None:
            return duck(self._parts.reader, hidden=self._hidden).table(self.table.name)
        past, wanted = self._widest(self._as_of)
        return duck(past, wanted, hidden=self._hidden).table(self.table.name)

    def to_spark(self) -> "DataFrame":
        """Starts Spark. What carries the rows out is the caller's, and raises Spark's errors."""
        from headwater.storage.tables.read_table import read_table

        rows = read_table(self._parts.spark, self.table, self._as_of)
        for column in self.table.model_columns:
            if self._hidden and column in rows.columns:
                rows = rows.where(~rows[column].isin(*self._hidden))
        return rows

    def _repr_html_(self) -> str:
        """For notebooks: its newest rows."""
        from headwater.domain.shown import rows_html
        from headwater.storage.query.plain_rows import to_json_rows

        newest = to_json_rows(self.page(limit=_SHOWN))
        return f"<p><b>{self.table.name}</b>, the newest rows</p>{rows_html(newest) if newest else '<p>No rows.</p>'}"

    def _at(self, ref: Ref, *others: str) -> "TablesAt":
        from headwater.storage.tables.time_travel import TablesAt

        return TablesAt(self._parts.reader, ref, [self.table.name, *others])

    def _widest(self, ref: Ref) -> "tuple[TablesAt, list[str]]":
        """All tables, where the ref names a state of all; else this one alone."""
        own = self._at(ref)
        others = [table.name for table in tables.TABLES if table != self.table]
        try:
            return self._at(ref, *others), [self.table.name, *others]
        except NotFound:
            return own, [self.table.name]
