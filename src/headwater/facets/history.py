"""`lake.history`: what the lake was, and by which names. Each method mirrors a command and calls one function."""

from typing import TYPE_CHECKING, Any

from headwater.clock import Moment, to_moment
from headwater.components import Components

if TYPE_CHECKING:
    from headwater.upkeep.history.tags import TagPlan


class LakeHistory:
    """`lake.history.tag("before-import", by="ann")`, then `lake.sql(query, as_of="before-import")`."""

    def __init__(self, components: Components) -> None:
        self._parts = components

    def snapshots(self, table: str, *, limit: int = 50) -> dict[str, Any]:
        """A table's snapshots, the latest first: when, what came and went, which names hold it."""
        from headwater.upkeep.table_view import list_snapshots

        return list_snapshots(self._parts.reader, table, limit)

    def tags(self) -> list[dict[str, Any]]:
        """The names of the whole lake, the latest first."""
        from headwater.upkeep.history.tags import list_tags

        return list_tags(self._parts)

    def plan_tag(
        self, name: str, *, by: str, note: str = "", until: Moment | None = None, hold: bool = False
    ) -> "TagPlan":
        """Which snapshots `tag` would name; starts no JVM."""
        from headwater.upkeep.history.tags import TagLake

        return TagLake(self._parts, name, by=by, note=note, until=to_moment(until), hold=hold).plan()

    def tag(
        self, name: str, *, by: str, note: str = "", until: Moment | None = None, hold: bool = False
    ) -> dict[str, Any]:
        """Name what the whole lake is now: a snapshot of every table, and its models. It is kept until it is untagged,
        a pin `until` then, a `hold` until its owner lifts it. Safe beside a run; starts no JVM."""
        from headwater.upkeep.history.tags import TagLake, tag_lake

        task = TagLake(self._parts, name, by=by, note=note, until=to_moment(until), hold=hold)
        return tag_lake(task, self._parts)

    def plan_untag(self, name: str, *, by: str) -> "TagPlan":
        """What `untag` would let go; starts no JVM."""
        from headwater.upkeep.history.tags import UntagLake

        return UntagLake(self._parts, name, by=by).plan()

    def untag(self, name: str, *, by: str) -> dict[str, Any]:
        """Let a name go; what nothing else keeps goes with the next expiry. Conflict of another's hold."""
        from headwater.upkeep.history.tags import UntagLake, tag_lake

        return tag_lake(UntagLake(self._parts, name, by=by), self._parts)
