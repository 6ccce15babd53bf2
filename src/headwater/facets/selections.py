"""What is in a lake, chosen by customer, kind, time, thread or facts: methods of the lake. Each calls one function."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.clock import Moment, to_moment
from headwater.components import Components

if TYPE_CHECKING:
    from headwater.upkeep.export import Exported, Form
    from headwater.upkeep.labels import Facts
    from headwater.upkeep.objects import Selection


class Selections:
    """A part of `Lake`."""

    _parts: Components

    def ls(
        self,
        *,
        customer: str | None = None,
        modality: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        thread: str | None = None,
        where: "Facts | None" = None,
        limit: int = 100,
        before: int | None = None,
    ) -> dict[str, Any]:
        """The objects that are in the lake, the last that came first: `{"objects": [{…}], "next"}`; `next` is the
        `before` of the page that follows, or None. `where` is as in `search`. Starts no JVM."""
        from headwater.upkeep.objects import list_objects

        chosen = self._selection(customer, modality, since, until, thread, where)
        return list_objects(self._parts.reader, chosen, limit=limit, before=before)

    def export(
        self,
        directory: str | Path,
        *,
        customer: str | None = None,
        modality: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        thread: str | None = None,
        where: "Facts | None" = None,
        form: "Form" = "parquet",
        vectors: bool = False,
    ) -> "Exported":
        """Raw bytes, rows and a manifest of what is chosen, in a directory that appears whole; as `parquet` or `jsonl`.

        Objects whose bytes could not be had are `missing` in the answer. Starts no JVM.
        """
        from headwater.upkeep.export import export

        chosen = self._selection(customer, modality, since, until, thread, where)
        return export(self._parts, Path(directory), chosen, form=form, vectors=vectors)

    def customers(self) -> list[dict[str, Any]]:
        """Whose objects are in the lake: how many, how large, from when to when; starts no JVM."""
        from headwater.upkeep.objects import list_customers

        return list_customers(self._parts.reader)

    def _selection(
        self,
        customer: str | None,
        modality: str | None,
        since: Moment | None,
        until: Moment | None,
        thread: str | None,
        where: "Facts | None",
    ) -> "Selection":
        from headwater.upkeep.labels import wanted_facts
        from headwater.upkeep.objects import Selection

        facts = wanted_facts(self._parts.ledger, where)
        return Selection(customer, modality, to_moment(since), to_moment(until), thread, facts)
