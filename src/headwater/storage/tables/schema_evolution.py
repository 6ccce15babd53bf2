"""Table evolution: what a table of the lake is made of in Iceberg's words, and how an older one is brought up to it.

Every step can be done twice. Nothing here reads or writes a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headwater.domain import tables
from headwater.domain.progress import SNAPSHOT, STAMP, snapshot_property
from headwater.storage.tables.metadata import progress_in
from headwater.storage.tables.snapshots import history_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.types import StructType

_LONG_TEXT: Final = {"text", "detail", "payload", "meta", "extra"}


def iceberg_schema(schema: pa.Schema) -> "Schema":
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
    from pyiceberg.schema import assign_fresh_schema_ids

    return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))


def metrics_of(table: tables.Table) -> dict[str, str]:
    """Whole bounds for plain columns: object ids share long prefixes, so bounds cut at 16 letters would prune nothing.

    Long texts, vectors and nested fields keep counts alone.
    """
    plain = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    return {f"write.metadata.metrics.column.{name}": "full" for name in plain if name not in _LONG_TEXT}


def add_columns(catalog: "Catalog", name: str, columns: Sequence[pa.Field]) -> None:
    """Those that are not there yet; old rows have nulls in them."""
    table = catalog.load_table(name)
    there = {column.name for column in table.schema().columns}
    missing = [field for field in columns if field.name not in there]
    if missing:
        kinds = iceberg_schema(pa.schema(missing))
        with table.update_schema() as update:
            for field in missing:
                update.add_column(field.name, kinds.find_field(field.name).field_type)


def add_fields(catalog: "Catalog", name: str, column: str, kind: pa.DataType) -> None:
    """Those of a struct, or of a list of structs, that are not in the column yet; in old rows they are null."""
    table = catalog.load_table(name)
    there, wanted = (
        _struct_in(schema, column) for schema in (table.schema(), iceberg_schema(pa.schema([(column, kind)])))
    )
    known = {field.name for field in there.fields}
    missing = [field for field in wanted.fields if field.name not in known]
    if missing:
        with table.update_schema() as update:
            for field in missing:
                update.add_column((column, field.name), field.field_type)


def _struct_in(schema: "Schema", column: str) -> "StructType":
    kind: Any = schema.find_field(column).field_type
    found: StructType = getattr(kind, "element_type", kind)
    return found


def add_unpartitioned_spec(catalog: "Catalog", name: str) -> None:
    """A second spec, for files whose rows are strewn over many days; twice is once."""
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.update import AddPartitionSpecUpdate

    table = catalog.load_table(name)
    if not any(spec.is_unpartitioned() for spec in table.specs().values()):
        spec = PartitionSpec(spec_id=max(table.specs()) + 1)
        table._do_commit((AddPartitionSpecUpdate(spec=spec),), ())


def set_metrics(catalog: "Catalog", table: tables.Table) -> None:
    """Bounds for the columns that came later, too."""
    loaded = catalog.load_table(table.name)
    missing = {name: value for name, value in metrics_of(table).items() if loaded.properties.get(name) != value}
    if missing:
        with loaded.transaction() as transaction:
            transaction.set_properties(missing)


def stamp_progress(catalog: "Catalog", name: str, aside: Mapping[str, int]) -> None:
    """Have a table from before stamps say how far it has come in a snapshot, an empty one; twice is once."""
    table = catalog.load_table(name)
    if SNAPSHOT in table.properties:
        return
    stamped = replace(progress_in(history_of(table)), aside=dict(aside))
    with table.transaction() as transaction:
        current = None
        if table.current_snapshot() is not None:
            with transaction.update_snapshot({STAMP: stamped.stamp()}).fast_append() as empty:
                current = empty.snapshot_id
        transaction.set_properties({**stamped.to_properties(), **snapshot_property(current)})
