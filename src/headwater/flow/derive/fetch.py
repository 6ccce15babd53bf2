"""The bytes a pointer names, verified, as a child needs them: in memory where they are few, in a file where many.

What an event says of an object is somebody else's word: never more is read than it claims, what was read must have its
checksum, and where it has not, the object's true size says why.
What is wrong with one object is a DataFault, which costs its row; a store that answers for nobody is Unavailable.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from headwater.domain.pointer import Pointer
from headwater.errors import AccessRefused, DataFault, HeadwaterError, InvalidRequest, NotFound, Unavailable
from headwater.flow.derive.source import Limits
from headwater.flow.derive.store_health import StoreHealth
from headwater.flow.models.registry import find_place
from headwater.settings import Settings, resolve
from headwater.storage.raw.store import RawStore, is_remote, open_raw_store

MEMORY_BYTES_MAX: Final = 16 << 20

Fetched = bytes | Path
T = TypeVar("T")


class Fetcher:
    """From the lake's raw store; or, for tests and benchmarks, by a function that the config names in `fetch`."""

    def __init__(self, config: Mapping[str, Any], limits: Limits) -> None:
        self._config = config
        self._limits = limits
        self._own: Callable[[Mapping[str, Any]], Fetched] | None = (
            find_place(config["fetch"]) if config.get("fetch") else None
        )
        self._opened: tuple[RawStore, StoreHealth] | None = None
        self.is_remote = self._own is None and is_remote(_settings(config).text("raw.uri"))

    @contextmanager
    def fetched(self, pointer: Mapping[str, Any], mates: Sequence[str] = ()) -> Iterator[Fetched]:
        """`mates` are the paths of objects that are fetched beside this one, to ask for where it is refused."""
        self._require_size(pointer)
        if self._own is not None:
            yield self._own(pointer)
            return
        named = Pointer.from_dict(dict(pointer))
        with ExitStack() as held:
            yield self._settled(named, mates, lambda store: self._fetch(store, named, held))

    def verify(self, pointer: Mapping[str, Any], mates: Sequence[str] = ()) -> None:
        """The same without keeping anything: the bytes are there, and they are the ones."""
        self._require_size(pointer)
        if self._own is not None:
            self._own(pointer)
            return
        named = Pointer.from_dict(dict(pointer))
        self._settled(named, mates, lambda store: self._read(store, named, None))

    def _settled(self, pointer: Pointer, mates: Sequence[str], read: Callable[[RawStore], T]) -> T:
        """What `read` gives. Where the store refuses, it is asked for others: that tells whose fault it is."""
        store, health = self._open()
        try:
            found = self._judged(store, pointer, read)
        except (AccessRefused, Unavailable) as error:
            if not health.blames(pointer.path, mates, is_denied=isinstance(error, AccessRefused)):
                raise Unavailable(str(error)) from error
            return self._again(store, pointer, read)
        health.note_read(pointer.path)
        return found

    def _again(self, store: RawStore, pointer: Pointer, read: Callable[[RawStore], T]) -> T:
        """A store that was restarted meanwhile gives it now; else it answers, and does not give this one."""
        try:
            return self._judged(store, pointer, read)
        except AccessRefused as error:
            hint = "A store that does not let us list says the same of what is not there."
            raise DataFault("UNFETCHABLE", f"{error} The store answers otherwise. {hint}") from error
        except Unavailable as error:
            raise DataFault("UNFETCHABLE", f"{error} The store answers otherwise.") from error

    def _judged(self, store: RawStore, pointer: Pointer, read: Callable[[RawStore], T]) -> T:
        try:
            return read(store)
        except (AccessRefused, Unavailable):
            raise
        except DataFault as fault:
            raise self._explained(store, pointer, fault) from fault
        except NotFound as error:
            raise DataFault("MISSING_OBJECT", str(error)) from error
        except InvalidRequest as error:  # the store refuses the path: an event from elsewhere made it
            raise DataFault("BAD_EVENT", str(error)) from error
        except HeadwaterError as error:
            raise DataFault("UNFETCHABLE", str(error)) from error

    def _explained(self, store: RawStore, pointer: Pointer, fault: DataFault) -> DataFault:
        """Bytes that are not the ones may be the beginning of many more than the event says."""
        if fault.reason != "CORRUPT" or pointer.offset:
            return fault
        try:
            found = store.head(pointer.path)
        except HeadwaterError:
            return fault
        if found is None or found.size == pointer.size:
            return fault
        lie = f"It has {found.size} bytes, and its event says {pointer.size}"
        if found.size > self._limits.object_mb << 20:
            return DataFault("TOO_LARGE", f"{lie}; limits.object_mb is {self._limits.object_mb}.")
        return DataFault("CORRUPT", f"{lie}; those do not have the checksum {pointer.checksum}.")

    def _fetch(self, store: RawStore, pointer: Pointer, held: ExitStack) -> Fetched:
        if pointer.size <= MEMORY_BYTES_MAX:
            return store.get(pointer)
        file = store.open_local(pointer.path)
        if file is not None:
            held.enter_context(file)
            if pointer.offset == 0 and os.fstat(file.fileno()).st_size == pointer.size:
                _require_checksum(pointer, _digest(file, pointer))
                return _path_of(file)
        copy = _temporary(held, pointer)
        self._read(store, pointer, copy)
        return _path_of(copy)

    def _read(self, store: RawStore, pointer: Pointer, copy: Any) -> None:
        """Into `copy`, if there is one; whatever the object's size, no more than the pointer says."""
        try:
            _copy(pointer, store.chunks(pointer.path, pointer.offset, pointer.size), copy)
        except (DataFault, NotFound) as error:
            # Somebody wrote over it, or deleted its name; the version may be there all the same.
            gone = isinstance(error, NotFound) or error.reason == "CORRUPT"
            kept = store.kept_chunks(pointer) if gone else None
            if kept is None:
                raise
            _copy(pointer, kept, copy)

    def _require_size(self, pointer: Mapping[str, Any]) -> None:
        most = self._limits.object_mb
        if pointer["size"] > most << 20:
            raise DataFault("TOO_LARGE", f"It has {pointer['size']} bytes; limits.object_mb is {most}.")

    def _open(self) -> tuple[RawStore, StoreHealth]:
        if self._opened is None:
            settings = _settings(self._config)
            try:
                store = open_raw_store(settings.text("raw.uri"), settings)
            except InvalidRequest as error:  # of this machine's settings, not of an object
                raise Unavailable(str(error)) from error
            self._opened = store, StoreHealth(store)
        return self._opened


def _settings(config: Mapping[str, Any]) -> Settings:
    return resolve(Path(config["lake"]), {}, config.get("settings", {}), {})


def _path_of(file: BinaryIO) -> Path:
    """The very file that was verified, whatever its name stands for by now."""
    return Path(f"/proc/self/fd/{file.fileno()}")


def _digest(file: BinaryIO, pointer: Pointer) -> str:
    try:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except OSError as error:
        raise Unavailable(f"The raw store failed at {pointer.path}: {error.strerror}. Check the disk.") from error


def _copy(pointer: Pointer, chunks: Iterator[bytes], copy: Any) -> None:
    hashed, size = hashlib.sha256(), 0
    try:
        if copy is not None:
            copy.seek(0)
            copy.truncate()
        for chunk in chunks:
            hashed.update(chunk)
            size += len(chunk)
            if copy is not None:
                copy.write(chunk)
        if copy is not None:
            copy.flush()
    except OSError as error:
        raise _no_room(pointer, error) from error
    if size < pointer.size:
        raise DataFault("CORRUPT", f"{pointer.path} is shorter than its {pointer.size} bytes.")
    _require_checksum(pointer, hashed.hexdigest())


def _temporary(held: ExitStack, pointer: Pointer) -> BinaryIO:
    """A file without a name: nothing is left behind when the child is killed."""
    try:
        return held.enter_context(tempfile.TemporaryFile())
    except OSError as error:
        raise _no_room(pointer, error) from error


def _no_room(pointer: Pointer, error: OSError) -> DataFault:
    """Others, which are smaller, may have room."""
    place = tempfile.gettempdir()
    return DataFault("UNFETCHABLE", f"There is no room for its {pointer.size} bytes in {place}: {error.strerror}.")


def _require_checksum(pointer: Pointer, found: str) -> None:
    if found != pointer.checksum:
        raise DataFault("CORRUPT", f"{pointer.path} no longer matches its checksum {pointer.checksum}.")
