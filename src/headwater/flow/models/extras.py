"""What a model needs that is not always installed: packages by extra, and weights on this machine's disk."""

import hashlib
import json
import os
from importlib import metadata
from pathlib import Path

from headwater.errors import InvalidRequest, ModelNotLoaded
from headwater.storage.io.cache import cache_directory


def version_of(distribution: str, extra: str) -> str:
    """The version of a package that comes with an extra, without importing it. Raises InvalidRequest without it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError as error:
        raise InvalidRequest(f"{distribution} is not installed: pip install 'headwater[{extra}]'.") from error


def not_installed(extra: str, error: ImportError) -> ModelNotLoaded:
    return ModelNotLoaded(f"A package is missing ({error}): pip install 'headwater[{extra}]'.")


def weights_digest(directory: Path) -> str:
    """A digest of the files under a directory. Gigabytes are read once: it is remembered by names, sizes and times."""
    try:
        files = [(str(file.relative_to(directory)), file.stat()) for file in _files(directory)]
    except OSError as error:
        raise InvalidRequest(f"{directory} cannot be read: {error}. Name the directory with the model.") from error
    if not files:
        raise InvalidRequest(f"{directory} has no files. Name the directory with the model.")
    seen = json.dumps([[name, stat.st_size, stat.st_mtime_ns] for name, stat in files])
    note = cache_directory() / "weights" / hashlib.sha256(f"{directory.resolve()}\n{seen}".encode()).hexdigest()
    if not (digest := _remembered(note)):
        digest = _digest(directory, [name for name, _ in files])
        _remember(note, digest)
    return digest


def _files(directory: Path) -> list[Path]:
    """Without what is hidden: a downloader notes there when it came, which differs from machine to machine."""
    found = (file for file in directory.rglob("*") if file.is_file())
    return sorted(file for file in found if not any(part[0] == "." for part in file.relative_to(directory).parts))


def _digest(directory: Path, names: list[str]) -> str:
    hashed = hashlib.sha256()
    for name in names:
        with (directory / name).open("rb") as file:
            hashed.update(f"{name}={hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return hashed.hexdigest()[:16]


def _remembered(note: Path) -> str:
    try:
        return note.read_text(encoding="ascii")
    except (OSError, UnicodeError):
        return ""


def _remember(note: Path, digest: str) -> None:
    """Without a place to write, it is read again the next time."""
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        part = note.with_suffix(f".{os.getpid()}")
        part.write_text(digest, encoding="ascii")
        part.replace(note)
    except OSError:
        return
