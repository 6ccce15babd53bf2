"""Components: the only place that builds live parts, each by its URI, each when it is first asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from headwater.clock import Clock, utc_now
from headwater.errors import InvalidRequest
from headwater.flow.models.own_code import look_in
from headwater.settings import Settings
from headwater.storage.ledger.ledger import Ledger, open_ledger
from headwater.storage.log.pointer_log import PointerLog, open_pointer_log
from headwater.storage.raw.store import RawStore, open_raw_store

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from headwater.domain.model_book import ModelBook
    from headwater.flow.models.port import Model
    from headwater.flow.preview.preview import Previews
    from headwater.storage.index.vector_index import VectorIndex
    from headwater.storage.query.process import QueryProcesses
    from headwater.storage.tables.catalog import Tables
    from headwater.storage.tables.writer import TableWriter

Part = TypeVar("Part")


class part(cached_property[Part]):  # in small letters, as what it takes the place of
    """A live part: built when it is first asked for, and no more once the lake is closed."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> "part[Part]": ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Part: ...
    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is not None and instance.is_closed:
            raise InvalidRequest("This lake is closed. Open it again: headwater.open(directory)")
        return super().__get__(instance, owner)


class Components:
    """A lake's live parts. Reading commands never touch `spark`, so they start no JVM.

    Closed, they are there no more, whoever still holds a lake, a facet or a table of it.
    """

    def __init__(self, settings: Settings, clock: Clock = utc_now) -> None:
        self.settings = settings
        self.clock = clock
        self.is_closed = False
        look_in(settings.lake, Path.cwd())
        self._models: dict[str, Model] = {}

    @part
    def raw_store(self) -> RawStore:
        return open_raw_store(self.settings.text("raw.uri"), self.settings)

    @part
    def log(self) -> PointerLog:
        return open_pointer_log(self.settings.text("log.uri"), self.settings, self.clock)

    @property
    def log_to_write(self) -> PointerLog:
        """The same, and the ledger knows which one it is: who publishes asks for this."""
        from headwater.flow.log.identity import note_identity

        note_identity(self.log, self.ledger)
        return self.log

    @part
    def ledger(self) -> Ledger:
        return open_ledger(self.settings.text("ledger.uri"))

    @part
    def catalog(self) -> "Catalog":
        from headwater.storage.tables.catalog import open_catalog

        return open_catalog(self.settings)

    @part
    def reader(self) -> "Tables":
        """The same tables for those who only read: half the imports."""
        from headwater.storage.tables.catalog import open_reader

        return open_reader(self.settings)

    @part
    def queries(self) -> "QueryProcesses":
        """For queries that are not ours."""
        from headwater.storage.query.process import QueryProcesses

        return QueryProcesses(self.settings)

    @part
    def previews(self) -> "Previews":
        """Draws what a browser can show."""
        from headwater.flow.preview.preview import Previews

        return Previews(self.settings, self.raw_store)

    def book(self) -> "ModelBook":
        """Read each time: a flip counts from the next question on."""
        from headwater.storage.ledger.model_book import read_book

        return read_book(self.ledger)

    def embedder(self, book: "ModelBook") -> "Model":
        """The active one, loaded, and kept while it is."""
        from headwater.domain.steps import EMBED
        from headwater.flow.models.choice import require_same

        active = book.active(EMBED.name)
        model = self._loaded(active.name if active else self.settings.text(EMBED.setting), book)
        if active:
            require_same(active, model.card)
        return model

    def picture_model(self, book: "ModelBook") -> "Model | None":
        """The active model that finds pictures by words, if there is one."""
        from headwater.domain.steps import PICTURE
        from headwater.flow.models.choice import require_same

        active = book.active(PICTURE.name)
        if active is None:
            return None
        model = self._loaded(active.name, book)
        require_same(active, model.card)
        return model

    def _loaded(self, name: str, book: "ModelBook") -> "Model":
        from headwater.flow.models.answers import loading
        from headwater.flow.models.choice import with_own_models
        from headwater.flow.models.registry import load_model

        if name not in self._models:
            model = load_model(name, with_own_models(self.settings, book.models).models)
            with loading(name):
                model.load()
            self._models[name] = model
        return self._models[name]

    @part
    def index(self) -> "VectorIndex":
        from headwater.storage.index.vector_index import open_index

        return open_index(self.settings)

    @part
    def spark(self) -> "SparkSession":
        from headwater.storage.spark.session import start_spark

        return start_spark(self.settings)

    def table_writer(self) -> "TableWriter":
        """For who rewrites files beside a run, under a lease that fences no rows; starts Spark."""
        from headwater.storage.tables.writer import TableWriter

        return TableWriter(self.spark_and_index(), self.settings)

    def spark_and_index(self) -> "SparkSession":
        """For who will write to the index: its library takes seconds to load, and so does the JVM. A session whose JVM
        is gone is succeeded by another."""
        from headwater.storage.spark.existing_session import is_inside
        from headwater.storage.spark.session import is_alive, start_spark

        if "spark" not in self.__dict__ or not (is_inside(self.spark) or is_alive(self.spark)):
            self.__dict__["spark"] = start_spark(self.settings, meanwhile=self.index.prepare)
        return self.spark

    @contextmanager
    def inside(self, theirs: "SparkSession | None") -> Iterator[None]:
        """What is done meanwhile is done inside a Spark that somebody else has made; None is one of our own."""
        from headwater.storage.spark.existing_session import session_inside
        from headwater.storage.spark.session import is_alive

        if theirs is None or is_alive(theirs):
            yield
            return
        with session_inside(theirs, self.settings) as session:
            before = self.__dict__.get("spark")
            self.__dict__["spark"] = session
            self.index.prepare()
            try:
                yield
            finally:
                self.__dict__.pop("spark", None)
                if before is not None:
                    self.__dict__["spark"] = before

    def prepare_spark_beside(self) -> None:
        """What makes Spark start faster, where set-up has not made it; nobody waits for it."""
        from headwater.storage.spark.class_archive import record_beside

        record_beside(self.settings.lake / "logs")

    def close(self) -> None:
        """Stop what was started; twice is once."""
        if "queries" in self.__dict__:
            self.queries.close()
        if "previews" in self.__dict__:
            self.previews.close()
        if "spark" in self.__dict__:
            from headwater.storage.spark.session import stop_spark

            stop_spark(self.__dict__.pop("spark"))
            self.prepare_spark_beside()
        for name in [name for name in self.__dict__ if isinstance(getattr(type(self), name, None), part)]:
            del self.__dict__[name]
        self.is_closed = True
