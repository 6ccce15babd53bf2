"""How things come in: methods of the lake itself. Each calls one function."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.clock import Moment, to_moment
from headwater.components import Components
from headwater.domain.meta import require_meta, require_thread
from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    from headwater.flow.imports.import_rows import Imported, Reject
    from headwater.flow.imports.row_source import Row
    from headwater.flow.landed import Landed


class Putting:
    """A part of `Lake`."""

    _parts: Components

    def put(
        self,
        *patterns: str | Path,
        customer: str | None = None,
        id: str | None = None,
        at: Moment | None = None,
        follow_links: bool = False,
        skip_unsupported: bool = False,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
        collect: bool = False,
    ) -> "list[Landed]":
        """Store files, directories or globs and publish their events; one result for each file.

        When all are done, the first that failed is raised; with `collect`, failures are results too. A link that is
        named is followed; one in a directory, or that a glob finds, only with `follow_links`. A file whose kind is not
        taken is a failure, or with `skip_unsupported` skipped. Without a customer it is that of `put.customer`.
        `meta` is what is known of all of them, `thread` their conversation; `call.wav.json` beside a file says more.
        """
        from headwater.flow.landed import require_landed

        how: dict[str, Any] = {"follow_links": follow_links, "skip_unsupported": skip_unsupported}
        how |= {"meta": meta, "thread": thread}
        landed = list(self.iter_put(*patterns, customer=customer, id=id, at=at, **how))
        return landed if collect else require_landed(landed)

    def iter_put(
        self,
        *patterns: str | Path,
        customer: str | None = None,
        id: str | None = None,
        at: Moment | None = None,
        follow_links: bool = False,
        skip_unsupported: bool = False,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
    ) -> "Iterator[Landed]":
        """As `put`, for more files than one wants to hold the results of: each is stored when its result is asked for,
        and one that failed is a result."""
        from headwater.flow.known_files import KnownFiles
        from headwater.flow.lake_places import LakePlaces
        from headwater.flow.land import land_many
        from headwater.flow.unpack.unpacker import Unpacker

        parts = self._parts
        about: dict[str, Any] = {"event_id": id, "at": to_moment(at), "clock": parts.clock}
        about |= {"follow_links": follow_links, "skip_unsupported": skip_unsupported}
        about |= {"places": LakePlaces(parts.settings), "meta": require_meta(meta), "thread": require_thread(thread)}
        about["known"] = KnownFiles(parts.ledger)
        about["unpacker"] = Unpacker.from_settings(parts.settings)
        return land_many(parts.raw_store, parts.log_to_write, patterns, self._whose(customer), **about)

    def put_text(
        self,
        text: str,
        *,
        customer: str | None = None,
        id: str | None = None,
        at: Moment | None = None,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
    ) -> "Landed":
        """A chat line; it needs no raw object. Conflict where the customer's id is known to be another text's."""
        from headwater.flow.known_files import KnownFiles
        from headwater.flow.land_text import land_text

        parts = self._parts
        about: dict[str, Any] = {"event_id": id, "known": KnownFiles(parts.ledger) if id else None}
        about |= {"meta": require_meta(meta), "thread": require_thread(thread)}
        return land_text(parts.log_to_write, text, self._whose(customer), at=to_moment(at) or parts.clock(), **about)

    def put_lines(
        self,
        lines: Iterable[bytes | str],
        *,
        customer: str | None = None,
        id: str | None = None,
        id_prefix: str | None = None,
        at: Moment | None = None,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
        collect: bool = False,
    ) -> "list[Landed]":
        """Each line is a chat message; one result for each that is not blank. Of failures, see `put`."""
        from headwater.flow.landed import require_landed

        how: dict[str, Any] = {"id": id, "id_prefix": id_prefix, "at": at, "meta": meta, "thread": thread}
        landed = list(self.iter_put_lines(lines, customer=customer, **how))
        return landed if collect else require_landed(landed)

    def iter_put_lines(
        self,
        lines: Iterable[bytes | str | None],
        *,
        customer: str | None = None,
        id: str | None = None,
        id_prefix: str | None = None,
        at: Moment | None = None,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
    ) -> "Iterator[Landed]":
        """As `put_lines`, of lines that go on coming: a None between them publishes what waits. One result a line, as
        it is asked for; one that failed is a result."""
        from headwater.flow.land_text import land_lines

        about: dict[str, Any] = {
            "event_id": id,
            "id_prefix": id_prefix,
            "at": to_moment(at),
            "clock": self._parts.clock,
        }
        about |= {"meta": require_meta(meta), "thread": require_thread(thread)}
        return land_lines(self._parts.log_to_write, lines, self._whose(customer), **about)

    def put_rows(
        self,
        rows: object,
        *,
        customer: str | None = None,
        map: Mapping[str, str] | None = None,
        at: Moment | None = None,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
        dry_run: bool = False,
        encoding: str | None = None,
        delimiter: str | None = None,
        on_reject: "Callable[[Reject, Row], None] | None" = None,
        progress: Callable[[int, float | None], None] | None = None,
    ) -> "Imported":
        """Each row is a message, or a file that it names: of a DataFrame of pandas or Polars, a table of Arrow, dicts,
        or of CSV, JSON lines and Parquet by their paths (`-` is standard input).

        `map` says which column is the id, customer, at, text, file or thread where it is not called so; all others are
        the meta. Rows that are no good are counted in the answer, by their reasons, and `on_reject` hears each.
        """
        from headwater.flow.imports.columns import ColumnMap
        from headwater.flow.imports.import_rows import Importing, import_rows
        from headwater.flow.imports.row_source import open_sources, rows_of
        from headwater.flow.known_files import KnownFiles
        from headwater.flow.lake_places import LakePlaces

        parts, columns = self._parts, ColumnMap.of(map)
        whose = customer or self._parts.settings.text("put.customer") or None
        how: dict[str, Any] = {"customer": whose, "at": to_moment(at), "dry_run": dry_run, "clock": parts.clock}
        how |= {"meta": require_meta(meta), "thread": require_thread(thread)}
        how |= {"on_reject": on_reject, "progress": progress, "known": KnownFiles(parts.ledger)}
        how |= {"places": LakePlaces(parts.settings)}
        paths = [rows] if isinstance(rows, str | Path) else rows
        if isinstance(paths, list | tuple) and paths and all(isinstance(each, str | Path) for each in paths):
            sources = open_sources(paths, encoding=encoding, delimiter=delimiter)
        else:
            sources = rows_of(rows)
        return import_rows(sources, Importing(parts.raw_store, parts.log_to_write, columns, **how))

    def watch(
        self,
        *patterns: str | Path,
        stop: threading.Event,
        customer: str | None = None,
        seconds: float = 1.0,
        follow_links: bool = False,
        skip_unsupported: bool = False,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
    ) -> "Iterator[Landed]":
        """As `iter_put`, again and again until `stop` is set: each file once it has stopped growing, and again when it
        is another. `seconds` are from one look to the next."""
        from headwater.flow.known_files import KnownFiles
        from headwater.flow.lake_places import LakePlaces
        from headwater.flow.land import land_sources
        from headwater.flow.store_file import Putting
        from headwater.flow.unpack.unpacker import Unpacker
        from headwater.flow.watch import land_watched

        parts = self._parts
        known: dict[str, Any] = {"known": KnownFiles(parts.ledger), "skip_unsupported": skip_unsupported}
        known |= {"meta": require_meta(meta), "thread": require_thread(thread)}
        putting = Putting(parts.raw_store, self._whose(customer), **known)
        unpacker = Unpacker.from_settings(parts.settings)
        land = partial(land_sources, parts.log_to_write, putting=putting, clock=parts.clock, unpacker=unpacker)
        places = LakePlaces(parts.settings)
        return land_watched(patterns, land, stop=stop, seconds=seconds, follow_links=follow_links, places=places)

    def _whose(self, customer: str | None) -> str:
        if named := customer or self._parts.settings.text("put.customer"):
            return named
        raise InvalidRequest("Whose is it? Name a customer with --customer NAME, or one for all in put.customer.")
