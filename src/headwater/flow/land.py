"""Land: store what comes in, then say so.

Reads   files, directories, globs, streams
Writes  the raw store, then the pointer log
Key     the object's path; the same file twice is one object and one event, also when it was touched in between.
Invariant: an object is durable before its event is published. A crash between the two leaves an orphan that
`find_orphans` finds, never an event without bytes; a result is given only once its event is published.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from headwater.clock import Clock, utc_now
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.flow.known_files import KnownFiles
from headwater.flow.lake_places import LakePlaces
from headwater.flow.landed import WRITERS, Landed, LandingBatch, failed
from headwater.flow.side_car import is_side_car
from headwater.flow.sources import Skipped, Source, expand
from headwater.flow.store_file import Putting, Stored, UnsupportedKind, store_file, store_stream
from headwater.flow.unpack.unpacker import Unpacker
from headwater.storage.log.pointer_log import PointerLog
from headwater.storage.raw.store import ObjectStat, RawStore


def land_file(
    raw: RawStore,
    log: PointerLog,
    path: Path,
    customer: str,
    *,
    event_id: str | None = None,
    at: datetime | None = None,
    known: KnownFiles | None = None,
) -> Landed:
    """`at` is the file's time of modification unless told. `known` is what makes a file that was touched the same."""
    landed = _landed(str(path), store_file(Putting(raw, customer, event_id, at, known), Source(str(path))))
    log.publish([landed.event] if landed.event else [])
    return landed


def land_stream(
    raw: RawStore,
    log: PointerLog,
    stream: BinaryIO,
    name: str,
    customer: str,
    *,
    at: datetime,
    event_id: str | None = None,
) -> Landed:
    """`name` says by its ending what the bytes are."""
    landed = _landed(name, store_stream(Putting(raw, customer, event_id), stream, name, at))
    log.publish([landed.event] if landed.event else [])
    return landed


def land_many(
    raw: RawStore,
    log: PointerLog,
    patterns: Iterable[str | Path],
    customer: str,
    *,
    event_id: str | None = None,
    at: datetime | None = None,
    follow_links: bool = False,
    skip_unsupported: bool = False,
    known: KnownFiles | None = None,
    places: LakePlaces | None = None,
    meta: Mapping[str, Any] | None = None,
    thread: str | None = None,
    unpacker: Unpacker | None = None,
    clock: Clock = utc_now,
) -> Iterator[Landed]:
    """One result for each file, in order; events are published in batches, and no result comes before its event.

    Links in a directory, or that a glob finds, are skipped unless `follow_links`; one that is named is followed.
    A file whose kind is not taken is a failure, or with `skip_unsupported` skipped. With an `unpacker` archives are
    put as the files in them, and the attachments of e-mails beside those.
    """
    sources = expand(patterns, follow_links=follow_links, places=places)
    putting = Putting(raw, customer, event_id, at, known, skip_unsupported, meta, thread)
    return land_sources(log, sources, putting, clock, unpacker)


def land_sources(
    log: PointerLog, found: Iterable[Source], putting: Putting, clock: Clock, unpacker: Unpacker | None = None
) -> Iterator[Landed]:
    """See `land_many`."""
    event_id, of_part = putting.event_id, replace(putting, event_id=None)
    sources: Iterable[Source] = (source for source in found if not is_side_car(source))
    batch = LandingBatch(log, clock, putting.known if event_id else None)
    with ExitStack() as unpacked, ThreadPoolExecutor(WRITERS, "land") as pool:
        try:
            sources = _only_one(sources) if event_id else sources
            if unpacker is not None:
                sources = unpacker.unpacked(sources, unpacked, alone=event_id is not None)
            for source in sources:
                name = "/".join(source.parts) or source.path.name
                batch.make_room(name)
                batch.storing.append((name, pool.submit(_attempt, of_part if source.part_of else putting, source)))
                if batch.is_due():
                    yield from batch.publish()
            batch.settle_all()
            yield from batch.publish()
        finally:
            # The caller stopped listening, or was interrupted: what is stored is still announced.
            batch.settle_all()
            batch.publish()


def find_orphans(raw: RawStore, known: Container[str], *, stored_before: datetime) -> Iterator[ObjectStat]:
    """Objects that no event names. Younger ones are passed over: their event may still be on its way."""
    return (found for found in raw.list() if found.modified_at < stored_before and found.path not in known)


def _attempt(putting: Putting, source: Source) -> Landed:
    try:
        return _landed(str(source.path), store_file(putting, source))
    except Skipped as reason:
        return Landed(str(source.path), "skipped", reason=str(reason))
    except UnsupportedKind as error:
        ending = source.path.suffix.lower()
        if putting.skip_unsupported:
            return Landed(str(source.path), "skipped", reason=str(error), unsupported=ending)
        return replace(failed(str(source.path), error), unsupported=ending)
    except HeadwaterError as error:
        return failed(str(source.path), error)


def _landed(source: str, stored: Stored) -> Landed:
    return Landed(source, "already there" if stored.was_there else "stored", stored.event)


def _only_one(sources: Iterable[Source]) -> list[Source]:
    found = list(islice(sources, 2))
    if len(found) > 1:
        raise InvalidRequest("--id names one file, but several were given. Put them one by one, or leave --id out.")
    return found
