"""Putting without an end: a method of the lake itself."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.components import Components
from headwater.domain.meta import require_meta, require_thread

if TYPE_CHECKING:
    from headwater.flow.land import Landed


class Watching(ABC):
    """A part of `Lake`."""

    _parts: Components

    @abstractmethod
    def _whose(self, customer: str | None) -> str: ...

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
