"""Sources: the files that `put` is pointed at, found and opened so that nothing else is read.

A path that the caller names is the caller's own word, a link too. What is found by a walk or a glob is not: there only
regular files count, and no link is followed unless asked for, since whoever may write into an inbox could name any file
of the machine with one. Each part below the named directory is opened on its own and from the one before, so a folder
that becomes a link between the look and the opening leads nowhere.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import has_magic, iglob
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, Final

from headwater.errors import HeadwaterError, InvalidRequest, NotFound, Unavailable

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Non-blocking, so that a pipe lying among the files does not stop everything.
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_LINKS: Final = {errno.ELOOP, errno.ENOTDIR}
Identity = tuple[int, int]  # of a folder: device and inode, by whichever path it was reached


class Skipped(Exception):
    """A link that was found and not named; the message says so."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file. `root` is the part of its path that the caller named, `parts` the names below it, `error` why it, or the
    folder that it is, cannot be looked into."""

    root: str
    parts: tuple[str, ...] = ()
    follow_links: bool = False
    error: HeadwaterError | None = None

    @property
    def path(self) -> Path:
        return Path(self.root, *self.parts)

    def open(self) -> BinaryIO:
        """Raises Skipped, or one of our errors."""
        if self.error is not None:
            raise self.error
        try:
            stream = os.fdopen(self._open(_FILE), "rb")
        except (OSError, ValueError) as error:
            raise self._reason(error) from error
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return stream
        stream.close()
        raise InvalidRequest(f"{self.path} is not a regular file. Copy its content to a file and put that.")

    def list_folder(self) -> "tuple[Identity, list[Source], list[Source]]":
        """Which folder it is, the files in it and the folders, sorted, without what is hidden."""
        try:
            descriptor = self._open(_FOLDER)
            try:
                found = os.fstat(descriptor)
                kinds = [(entry.name, self._is_folder(entry)) for entry in os.scandir(descriptor)]
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise self._reason(error) from error
        shown = sorted(kind for kind in kinds if not kind[0].startswith("."))
        files = [self._below(name) for name, is_folder in shown if not is_folder]
        folders = [self._below(name) for name, is_folder in shown if is_folder]
        return (found.st_dev, found.st_ino), files, folders

    def up_to_link(self) -> "Source":
        """Itself; or the first link on the way to it, where no link is to be followed."""
        for depth in range(1, len(self.parts)):
            above = Source(self.root, self.parts[:depth])
            if not self.follow_links and above.path.is_symlink():
                return above
        return self

    def is_folder(self) -> bool:
        """As far as it can be told; opening it will show."""
        try:
            return stat.S_ISDIR(os.stat(self.path, follow_symlinks=self.follow_links or not self.parts).st_mode)
        except (OSError, ValueError):
            return False

    def _is_folder(self, entry: "os.DirEntry[str]") -> bool:
        try:
            return entry.is_dir(follow_symlinks=self.follow_links)
        except OSError:
            return False

    def _below(self, name: str) -> "Source":
        return Source(self.root, (*self.parts, name), self.follow_links)

    def _open(self, how: int) -> int:
        """What the caller named is opened as it is, and each part below it from the one before."""
        no_links = 0 if self.follow_links else os.O_NOFOLLOW
        if not self.parts:
            return os.open(self.root, how)
        folder = os.open(self.root, _FOLDER)
        try:
            for part in self.parts[:-1]:
                inner = os.open(part, _FOLDER | no_links, dir_fd=folder)
                os.close(folder)
                folder = inner
            return os.open(self.parts[-1], how | no_links, dir_fd=folder)
        finally:
            os.close(folder)

    def _reason(self, error: OSError | ValueError) -> Exception:
        if isinstance(error, OSError) and error.errno in _LINKS and self.parts and not self.follow_links:
            return Skipped(f"{self.path} is a link, or behind one. Name it, or put with --follow-links.")
        return unreadable(self.path, error)


def unreadable(path: Path, error: OSError | ValueError) -> HeadwaterError:
    """The one place where a source file's errors become ours."""
    if isinstance(error, FileNotFoundError):
        what = "matches no file" if has_magic(str(path)) else "does not exist"
        return NotFound(f"{path} {what}. Check the name and put it again.")
    if isinstance(error, IsADirectoryError | PermissionError | NotADirectoryError | ValueError):
        return InvalidRequest(f"{str(path)!r} cannot be read: {error}. Check the name and its permissions.")
    return Unavailable(f"{path} cannot be read: {error}. Check its disk and put it again.")


def expand(patterns: Iterable[str | Path], *, follow_links: bool = False) -> Iterator[Source]:
    """Files as they are, directories recursively without what is hidden, globs; sorted, each path once.

    What matches nothing is given back as it is, for its result to say so; and so is a folder that cannot be read.
    """
    seen: set[str] = set()
    for pattern in patterns:
        for source in _matches(str(pattern), follow_links):
            if (place := os.path.abspath(source.path)) not in seen:
                seen.add(place)
                yield source


def _matches(pattern: str, follow_links: bool) -> Iterator[Source]:
    named = Source(pattern, follow_links=follow_links)
    if named.is_folder():
        yield from _walk(named)
    elif os.path.lexists(pattern) or not has_magic(pattern):
        yield named
    else:
        matches = [_found_by(pattern, match, follow_links) for match in sorted(iglob(pattern, recursive=True))]
        for source in matches or [named]:
            yield from _walk(source) if source.is_folder() else [source.up_to_link()]


def _found_by(pattern: str, match: str, follow_links: bool) -> Source:
    """What the caller named is the part of a glob before its first sign; the rest was found."""
    named = tuple(takewhile(lambda part: not has_magic(part), Path(pattern).parts))
    return Source(str(Path(*named)), Path(match).parts[len(named) :], follow_links)


def _walk(folder: Source) -> Iterator[Source]:
    """Of each folder its files, then its folders; one that is among those above it, by a link, is not entered again."""
    waiting: list[tuple[Source, frozenset[Identity]]] = [(folder, frozenset())]
    while waiting:
        folder, above = waiting.pop()
        try:
            identity, files, folders = folder.list_folder()
        except Skipped:
            yield folder
            continue
        except HeadwaterError as error:
            yield Source(folder.root, folder.parts, folder.follow_links, error)
            continue
        if identity not in above:
            yield from files
            waiting += [(inner, above | {identity}) for inner in reversed(folders)]
