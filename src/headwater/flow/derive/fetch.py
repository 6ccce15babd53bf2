"""The bytes a pointer names, verified, as a child needs them: in memory where they are few, in a file where many."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from headwater.domain.pointer import Pointer
from headwater.errors import DataFault, InvalidRequest, NotFound, Unavailable
from headwater.flow.derive.source import Limits
from headwater.flow.models.registry import find_place
from headwater.settings import Settings, resolve
from headwater.storage.raw_store import RawStore, open_raw_store
from headwater.storage.s3 import is_s3

MEMORY_BYTES_MAX: Final = 16 << 20

Fetched = bytes | Path
Fetch = Callable[[Mapping[str, Any], str | None], AbstractContextManager[Fetched]]


def fetcher(config: Mapping[str, Any], limits: Limits) -> Fetch:
    """From the lake's raw store; or, for tests and benchmarks, by a function that the config names in `fetch`."""
    own: Callable[[Mapping[str, Any]], Fetched] | None = find_place(config["fetch"]) if config.get("fetch") else None
    store: RawStore | None = None

    @contextmanager
    def fetch(pointer: Mapping[str, Any], text: str | None) -> Iterator[Fetched]:
        nonlocal store
        if text is not None:
            yield b""  # chat travels inline: there is no object to fetch
            return
        _require_size(pointer, limits)
        if own is not None:
            yield own(pointer)
            return
        if store is None:
            store = _store(config)
        with _stored(store, Pointer.from_dict(dict(pointer))) as content:
            yield content

    return fetch


def is_remote(config: Mapping[str, Any]) -> bool:
    """Whether bytes come from another machine, which may keep one waiting."""
    return not config.get("fetch") and is_s3(_settings(config).text("raw.uri"))


def _store(config: Mapping[str, Any]) -> RawStore:
    settings = _settings(config)
    try:
        return open_raw_store(settings.text("raw.uri"), settings)
    except InvalidRequest as error:  # of this machine's settings, not of an object
        raise Unavailable(str(error)) from error


def _settings(config: Mapping[str, Any]) -> Settings:
    return resolve(Path(config["lake"]), {}, config.get("settings", {}), {})


def _require_size(pointer: Mapping[str, Any], limits: Limits) -> None:
    if pointer["size"] > limits.object_mb << 20:
        raise DataFault("TOO_LARGE", f"It has {pointer['size']} bytes; limits.object_mb is {limits.object_mb}.")


@contextmanager
def _stored(store: RawStore, pointer: Pointer) -> Iterator[Fetched]:
    try:
        if pointer.size <= MEMORY_BYTES_MAX:
            yield store.get(pointer)
            return
        path = store.local_path(pointer.path)
        if path is not None:
            _require_checksum(pointer, _digest(path))
            yield path
            return
    except NotFound as error:
        raise DataFault("MISSING_OBJECT", str(error)) from error
    # A file without a name: nothing is left behind when the child is killed.
    with tempfile.TemporaryFile() as file:
        _bring(store, pointer, file)
        yield Path(f"/proc/self/fd/{file.fileno()}")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bring(store: RawStore, pointer: Pointer, file: Any) -> None:
    try:
        try:
            _require_checksum(pointer, _copied(store.chunks(pointer.path), file))
        except NotFound as error:
            raise DataFault("MISSING_OBJECT", str(error)) from error
    except DataFault:
        # Somebody wrote over it, or deleted its name; the version may be there all the same.
        kept = store.kept_chunks(pointer)
        if kept is None:
            raise
        file.seek(0)
        file.truncate()
        _require_checksum(pointer, _copied(kept, file))


def _copied(chunks: Iterator[bytes], file: Any) -> str:
    hashed = hashlib.sha256()
    for chunk in chunks:
        hashed.update(chunk)
        file.write(chunk)
    file.flush()
    return hashed.hexdigest()


def _require_checksum(pointer: Pointer, found: str) -> None:
    if found != pointer.checksum:
        raise DataFault("CORRUPT", f"{pointer.path} no longer matches its checksum {pointer.checksum}.")
