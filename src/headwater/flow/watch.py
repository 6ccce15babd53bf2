"""Watch: look again and again, and put each file once it has stopped growing.

Reads   files, directories and globs
Writes  what `land_many` writes
A file is taken when two looks in a row find it with the same size and time, and once more when it is another; one that
failed too. Who starts anew puts all of it again, which changes nothing.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from headwater.flow.lake_places import LakePlaces
from headwater.flow.landed import Landed
from headwater.flow.sources import Source, expand

Seen = tuple[int, int]  # size and time of modification
Land = Callable[[list[Source]], Iterator[Landed]]


def land_watched(
    patterns: Iterable[str | Path],
    land: Land,
    *,
    stop: threading.Event,
    seconds: float,
    follow_links: bool = False,
    places: LakePlaces | None = None,
) -> Iterator[Landed]:
    """One result for each file that came to rest, until `stop` is set. What matches nothing yet may come to be."""
    before, done, wanted = dict[Path, Seen](), dict[Path, Seen](), list(patterns)
    while not stop.is_set():
        now, rested = dict[Path, Seen](), list[Source]()
        for source, seen in _look(wanted, follow_links, places):
            now[source.path] = seen
            if before.get(source.path) == seen and done.get(source.path) != seen:
                rested.append(source)
        done = {path: seen for path, seen in done.items() if path in now}
        done |= {source.path: now[source.path] for source in rested}
        before = now
        if rested:
            yield from land(rested)
        stop.wait(seconds)


def _look(patterns: list[str | Path], follow_links: bool, places: LakePlaces | None) -> Iterator[tuple[Source, Seen]]:
    for source in expand(patterns, follow_links=follow_links, places=places):
        try:
            found = os.stat(source.path, follow_symlinks=follow_links or not source.parts)
        except (OSError, ValueError):
            continue  # gone since, or not there yet
        yield source, (found.st_size, found.st_mtime_ns)
