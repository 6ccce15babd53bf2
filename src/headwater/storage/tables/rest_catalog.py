"""An Iceberg REST catalog: what PyIceberg and Spark both call its settings, and what it can promise.

A REST server compares a table's snapshot, schema and so on before it commits, but never its properties. So of two who
change properties alone at the same moment both may succeed, where a SQL catalog refuses one: there the lease in the
ledger keeps them apart.
"""

from typing import TYPE_CHECKING, Final

from headwater.settings import Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.update import TableRequirement

URIS: Final = "Use sqlite:///file, postgresql://user@host/database, or the https:// address of an Iceberg REST catalog."


def is_rest(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def rest_conf(settings: Settings) -> dict[str, str]:
    """A warehouse may be a name that the server knows."""
    token = settings.text("catalog.token")
    place = {"uri": settings.text("catalog.uri"), "warehouse": settings.text("catalog.warehouse")}
    return place | ({"token": token} if token else {})


def is_rest_catalog(catalog: "Catalog") -> bool:
    from pyiceberg.catalog.rest import RestCatalog

    return isinstance(catalog, RestCatalog)


def unmoved(table: "Table") -> "tuple[TableRequirement, ...]":
    """That rows are as they were read; a writer of rows in between is noticed."""
    from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

    main = {"ref": "main", "snapshot-id": table.metadata.current_snapshot_id}
    return AssertTableUUID(uuid=table.metadata.table_uuid), AssertRefSnapshotId.model_validate(main)
