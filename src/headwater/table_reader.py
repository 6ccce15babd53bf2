"""One table of a lake in the form that its reader works with: Arrow, pandas, DuckDB or Spark."""

from typing import TYPE_CHECKING

from headwater.components import Components
from headwater.domain import tables

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame


class TableReader:
    """One table: `lake.table("transcripts").to_pandas()`. `hidden` are models that are not active."""

    def __init__(self, components: Components, table: tables.Table, hidden: frozenset[str]) -> None:
        self._parts = components
        self._hidden = hidden
        self.table = table

    def to_arrow(self) -> "pa.Table":
        from headwater.storage.query.reader import scan, seen

        return seen(scan(self._parts.reader, self.table.name), self.table, self._hidden)

    def to_pandas(self) -> "pd.DataFrame":
        return self.to_arrow().to_pandas()

    def to_duckdb(self) -> "duckdb.DuckDBPyRelation":
        """A relation to go on querying; its connection has the other tables as views too."""
        from headwater.storage.query.reader import duck

        return duck(self._parts.reader, hidden=self._hidden).table(self.table.name)

    def to_spark(self) -> "DataFrame":
        """Starts Spark."""
        from headwater.storage.tables.read_table import read_table

        rows = read_table(self._parts.spark, self.table)
        for column in self.table.model_columns if self._hidden else ():
            rows = rows.where(~rows[column].isin(*self._hidden))
        return rows
