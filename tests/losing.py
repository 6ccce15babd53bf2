"""A catalog whose answers get lost, cut or late; the database below is real, and does what it was asked for."""

from collections.abc import Callable

from headwater.errors import Unavailable
from headwater.settings import Settings
from headwater.storage.tables.commit import Committer, SqlTables
from headwater.storage.tables.metadata_location import MetadataLocations, open_metadata_locations


class LosingLocations:
    """`swaps` says what becomes of each swap, in order; afterwards all is well.

    `done` is answered, `lost` is done and not answered, `refused` is neither done nor answered, `late` is done when the
    table was looked at, and `repeated` is sent twice by the wire, which answers with the second.
    """

    def __init__(self, inner: MetadataLocations, *swaps: str) -> None:
        self._inner = inner
        self._swaps = list(swaps)
        self._late: Callable[[], object] | None = None
        self.silent_reads = 0

    def read(self, table: str) -> str:
        if self.silent_reads > 0:
            self.silent_reads -= 1
            raise Unavailable("The catalog does not answer.")
        found = self._inner.read(table)
        if self._late is not None:
            self._late, late = None, self._late
            late()
        return found

    def swap(self, table: str, old: str, new: str) -> bool:
        kind = self._swaps.pop(0) if self._swaps else "done"
        if kind == "late":
            self._late = lambda: self._inner.swap(table, old, new)
        elif kind != "refused":
            answer = self._inner.swap(table, old, new)
            if kind == "repeated":
                return self._inner.swap(table, old, new)
            if kind == "done":
                return answer
        raise Unavailable("The answer got lost.")


def losing_committer(settings: Settings, *swaps: str) -> tuple[Committer, LosingLocations]:
    committer = Committer(settings)
    wire = LosingLocations(open_metadata_locations(settings.text("catalog.uri")), *swaps)
    committer.tables = SqlTables(wire, committer.files)
    return committer, wire
