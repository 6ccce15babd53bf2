"""The query engine: a DuckDB of its own for each question, which reads `lake_files` and can do nothing else.

Locked, it reaches no other file, loads no extension and takes no setting. Before that, views are made. Its errors
become ours here: what the store did not give is Unavailable, the rest is the query's fault.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from headwater.errors import HeadwaterError, InvalidRequest, Unavailable
from headwater.storage.query.lake_files import PROTOCOL, LakeFiles
from headwater.storage.tables.expired_scan import expired

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SETTINGS: Final = (
    "SET TimeZone = 'UTC'",
    # Files are read page by page, and `read_ahead` looks to it that this takes few requests.
    "SET disable_parquet_prefetching = true",
    "SET enable_external_file_cache = false",
    # What needs more memory than there is fails. It would spill into whatever directory we happen to be in.
    "SET temp_directory = ''",
    "SET allow_persistent_secrets = false",
    "SET secret_directory = ''",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
)
_LOCKS: Final = (
    f"SET allowed_directories = ['{PROTOCOL}://']",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
# How DuckDB says that memory is up, also where the words come to us through Arrow.
_OUT_OF_MEMORY: Final = ("Out of Memory Error", "Allocation failure", "bad_alloc", "malloc of size")

_BEYOND_THE_CALENDAR: Final = (
    "The answer has a date or time outside the years 1 to 9999, which cannot be told as one. Cast it: column::varchar"
)


class Engine:
    """Close it, or use it as `open_engine` gives it; who hands the connection on leaves it open."""

    def __init__(self, memory_mb: int | None = None) -> None:
        import duckdb

        self.memory_mb = memory_mb
        self.files = LakeFiles()
        self.connection: DuckDBPyConnection = duckdb.connect(":memory:")
        for line in _SETTINGS:
            self.connection.execute(line)
        if memory_mb is not None:
            self.connection.execute(f"SET memory_limit = '{memory_mb:d}MB'")
        self.connection.register_filesystem(self.files)

    def lock(self) -> None:
        for line in _LOCKS:
            self.connection.execute(line)

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """The one place where DuckDB's errors, and Arrow's about what DuckDB hands over, become ours."""
        import duckdb
        import pyarrow as pa

        try:
            yield
        except HeadwaterError:
            raise
        except OverflowError as error:
            raise InvalidRequest(_BEYOND_THE_CALENDAR) from error
        except (duckdb.Error, pa.ArrowException, OSError, MemoryError, RuntimeError) as error:
            raise self._ours(error) from error

    def _ours(self, error: Exception) -> HeadwaterError:
        import duckdb

        if isinstance(self.files.trouble, FileNotFoundError):
            return expired("the table", self.files.trouble)
        if self.files.trouble is not None:
            return Unavailable(f"A data file could not be read: {self.files.trouble}. Try again.")
        if isinstance(error, MemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY):
            return out_of_memory(self.memory_mb)
        if isinstance(error, duckdb.PermissionException):
            return InvalidRequest("A query reads the lake's tables; files and settings are out of its reach.")
        return InvalidRequest(f"The query cannot be answered: {str(error).partition('Stack Trace:')[0].strip()}")


class OutOfMemory(InvalidRequest):
    """What failed to allocate may have left half-built things behind: a process that has raised this is worn."""


def out_of_memory(memory_mb: int | None) -> OutOfMemory:
    if memory_mb is None:
        return OutOfMemory("The query needs more memory than this machine has. Ask for fewer rows or columns.")
    return OutOfMemory(
        f"The query or its answer needs more than sql.memory_mb, {memory_mb:,} MB, and was stopped. Ask for fewer rows "
        f"or columns, or allow more: --set sql.memory_mb={2 * memory_mb}"
    )


@contextmanager
def open_engine(memory_mb: int | None = None) -> Iterator[Engine]:
    engine = Engine(memory_mb)
    try:
        with engine.translated():
            yield engine
    finally:
        engine.close()
