"""The live parts of a lake that upkeep works on, as `components` builds them: a port, so that nothing here looks up."""

from typing import TYPE_CHECKING, Protocol

from headwater.clock import Clock
from headwater.domain.model_book import ModelBook
from headwater.settings import Settings
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.ledger.ledger import Ledger
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.raw.store import RawStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from headwater.storage.tables.catalog import Tables
    from headwater.storage.tables.writer import TableWriter


class Parts(Protocol):
    """Each is opened when it is first asked for; only the last two start a JVM."""

    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def raw_store(self) -> RawStore: ...
    @property
    def log(self) -> PointerLog: ...
    @property
    def log_to_write(self) -> PointerLog: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def catalog(self) -> "Catalog": ...
    @property
    def reader(self) -> "Tables": ...
    @property
    def index(self) -> VectorIndex: ...
    def book(self) -> ModelBook: ...
    def table_writer(self) -> "TableWriter": ...
    def spark_and_index(self) -> "SparkSession": ...
