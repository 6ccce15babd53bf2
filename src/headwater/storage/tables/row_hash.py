"""Row hash: whether two tables hold the same rows, whatever the order and the files they lie in."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class RowHash:
    """`digest` joins a sum and an exclusive or of the rows' hashes: a row more, less or twice changes it."""

    rows: int
    digest: str


def hash_rows(table: "Table", snapshot_id: int | None = None) -> RowHash:
    """Every column of every row at a snapshot, streamed; the current one by default."""
    import duckdb

    reader = table.scan(snapshot_id=snapshot_id).to_arrow_batch_reader()
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("read", reader)
        query = "SELECT count(*), coalesce(sum(hash(r)), 0), coalesce(bit_xor(hash(r)), 0) FROM read AS r"
        found = connection.execute(query).fetchone()
    assert found is not None
    return RowHash(int(found[0]), f"{int(found[1]):x}-{int(found[2]):x}")


def hash_refs(table: "Table") -> dict[str, RowHash]:
    """By branch and tag."""
    return {name: hash_rows(table, ref.snapshot_id) for name, ref in sorted(table.metadata.refs.items())}
