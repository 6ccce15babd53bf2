"""Sources: the files that `put` is pointed at, found and opened so that nothing else is read.

A path that the caller names is the caller's own word, a link too. What is found by a walk or a glob is not: there only
regular files count, and no link is followed unless asked for, since whoever may write into an inbox could name any file
of the machine with one. Each part below the named directory is opened on its own and from the one before, so a folder
that becomes a link between the look and the opening leads nowhere.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from glob import has_magic
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, Final

from headwater.errors import HeadwaterError, InvalidRequest, NotFound, Unavailable
from headwater.flow.lake_places import LakePlaces

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Non-blocking, so that a pipe lying among the files does not stop everything.
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_LINKS: Final = {errno.ELOOP, errno.ENOTDIR}
_ANY_DEPTH: Final = "**"
Identity = tuple[int, int]  # of a folder: device and inode, by whichever path it was reached
_NOWHERE: Final[Identity] = (-1, -1)


class Skipped(Exception):
    """What was found and not named, and is not taken: a link, or a lake's own parts; the message says so."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file. `root` is the part of its path that the caller named, `parts` the names below it, `error` why it, or the
    folder that it is, cannot be looked into. `part_of` names the archive or the e-mail that it came in."""

    root: str
    parts: tuple[str, ...] = ()
    follow_links: bool = False
    error: HeadwaterError | Skipped | None = None
    part_of: str = ""

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

    def list_folder(self, *, hidden: bool = False) -> "tuple[Identity, list[Source], list[Source]]":
        """Which folder it is, the files in it and the folders, sorted; either what is hidden, or what is not."""
        try:
            descriptor = self._open(_FOLDER)
            try:
                found = os.fstat(descriptor)
                kinds = [(entry.name, self._is_folder(entry)) for entry in os.scandir(descriptor)]
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise self._reason(error) from error
        shown = sorted(kind for kind in kinds if kind[0].startswith(".") == hidden)
        files = [self._below(name) for name, is_folder in shown if not is_folder]
        folders = [self._below(name) for name, is_folder in shown if is_folder]
        return (found.st_dev, found.st_ino), files, folders

    def find_below(self, name: str) -> "tuple[list[Source], list[Source]]":
        """What has this name in it, as a file or as a folder, if anything has."""
        below = self._below(name)
        try:
            os.lstat(below.path)
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        except (OSError, ValueError) as error:
            raise unreadable(below.path, error) from error
        return ([], [below]) if below.is_folder() else ([below], [])

    def is_link_to_folder(self) -> bool:
        return os.path.islink(self.path) and os.path.isdir(self.path)

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
        return InvalidRequest(f"{str(path)!r} cannot be read: {_why(error)}. Check the name and its permissions.")
    return Unavailable(f"{path} cannot be read: {_why(error)}. Check its disk and put it again.")


def _why(error: OSError | ValueError) -> str:
    """Its path has been named already."""
    return getattr(error, "strerror", None) or str(error)


# A folder, what is left of the glob for it, and the folders above it that were entered by the same `**`.
_Search = tuple[Source, tuple[str, ...], frozenset[Identity]]


def expand(
    patterns: Iterable[str | Path], *, follow_links: bool = False, places: LakePlaces | None = None
) -> Iterator[Source]:
    """Files as they are, directories recursively without what is hidden, globs; sorted, each path once.

    What matches nothing is given back as it is, for its result to say so; and so is a folder that cannot be read. What
    belongs to a lake is left out and told once, and is refused where it was named.
    """
    seen: set[str] = set()
    places = places or LakePlaces()
    for pattern in patterns:
        for source in _but_lakes(str(pattern), follow_links, places):
            if (place := os.path.abspath(source.path)) not in seen:
                seen.add(place)
                yield source


def _but_lakes(pattern: str, follow_links: bool, places: LakePlaces) -> Iterator[Source]:
    root = _root_of(pattern)
    places.look_above(root)
    if lake := places.lake_of(root):
        whose = f"{pattern} is a part of the lake in {lake}, and no file of a customer's."
        yield Source(pattern, error=InvalidRequest(f"{whose} What is in that lake: headwater get ID, or sql."))
        return
    if os.path.isdir(root):
        places.look_below(root, follow_links=follow_links)
    left_out: set[str] = set()
    for source in _matches(pattern, follow_links, places):
        if (lake := places.lake_of(source.path)) is None:
            yield source
        elif lake not in left_out:
            left_out.add(lake)
            reason = f"{source.path} is a part of the lake in {lake}; none of its own files are taken."
            yield replace(source, error=Skipped(reason))


def _root_of(pattern: str) -> str:
    """The part of a glob before its first sign; of a file that is there, all of it."""
    if os.path.lexists(pattern) or not has_magic(pattern):
        return pattern
    return str(Path(*takewhile(lambda part: not has_magic(part), Path(pattern).parts)))


def _matches(pattern: str, follow_links: bool, places: LakePlaces) -> Iterator[Source]:
    named = Source(pattern, follow_links=follow_links)
    if named.is_folder():
        yield from _walk(named, places)
    elif os.path.lexists(pattern) or not has_magic(pattern):
        yield named
    else:
        found = False
        for source in _glob(pattern, follow_links):
            found = True
            yield from _walk(source, places) if source.error is None and source.is_folder() else [source]
        if not found:
            yield named


def _glob(pattern: str, follow_links: bool) -> Iterator[Source]:
    """What the caller named is the part of a glob before its first sign; the rest is found, folder by folder.

    Python's own glob passes over a folder that cannot be read without a word.
    """
    parts = Path(pattern).parts
    named = tuple(takewhile(lambda part: not has_magic(part), parts))
    root = Source(str(Path(*named)), follow_links=follow_links)
    waiting: list[_Search] = [(root, _signs(parts[len(named) :]), frozenset())] if root.is_folder() else []
    while waiting:
        folder, signs, above = waiting.pop()
        if signs == (_ANY_DEPTH,) or (signs == (_ANY_DEPTH, "*") and not pattern.endswith(os.sep)):
            yield folder  # all of it; folder by folder, each would be walked again for each one above it
            continue
        try:
            identity, files, folders = _matching(folder, signs[0])
        except Skipped:
            yield folder
            continue
        except HeadwaterError as error:
            yield replace(folder, error=error)
            continue
        if len(signs) == 1:
            yield from folders if pattern.endswith(os.sep) else [*files, *folders]
        elif identity not in above:
            yield from (file for file in files if file.is_link_to_folder())
            waiting += _below(folder, folders, signs, above | {identity})


def _signs(parts: Sequence[str]) -> tuple[str, ...]:
    """One `**` after another is one."""
    return tuple(sign for sign, before in zip(parts, ("", *parts), strict=False) if not sign == before == _ANY_DEPTH)


def _matching(folder: Source, sign: str) -> tuple[Identity, list[Source], list[Source]]:
    """What of a folder is called so, hidden where the sign begins as hidden names do."""
    if not has_magic(sign):
        return _NOWHERE, *folder.find_below(sign)
    identity, files, folders = folder.list_folder(hidden=sign.startswith("."))
    if sign == _ANY_DEPTH:
        return identity, files, folders
    files, folders = ([one for one in some if fnmatchcase(one.parts[-1], sign)] for some in (files, folders))
    return _NOWHERE, files, folders


def _below(
    folder: Source, folders: Sequence[Source], signs: tuple[str, ...], above: frozenset[Identity]
) -> Iterator[_Search]:
    """Where to look next, the last of them first."""
    if signs[0] != _ANY_DEPTH:
        yield from ((inner, signs[1:], frozenset()) for inner in reversed(folders))
        return
    # Only here can a link lead round and round.
    yield from ((inner, signs, above) for inner in reversed(folders))
    yield folder, signs[1:], frozenset()


def _walk(folder: Source, places: LakePlaces) -> Iterator[Source]:
    """Of each folder its files, then its folders; one that is among those above it, by a link, is not entered again."""
    waiting: list[tuple[Source, frozenset[Identity]]] = [(folder, frozenset())]
    while waiting:
        folder, above = waiting.pop()
        if places.lake_of(folder.path):
            yield folder  # for its result to say so
            continue
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
