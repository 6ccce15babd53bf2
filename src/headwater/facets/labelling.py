"""What people say of objects, and how they belong together: methods of the lake itself. Each calls one function."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater.components import Components

if TYPE_CHECKING:
    from headwater.upkeep.labels import Facts


class Labelling:
    """A part of `Lake`."""

    _parts: Components

    def label(
        self,
        id: str,
        labels: "Facts" = (),
        *,
        by: str,
        remove: Sequence[str] = (),
        customer: str | None = None,
    ) -> dict[str, Any]:
        """Say more of an object: `lake.label(id, {"mood": "angry"}, by="ann")`. Another value takes a label's place;
        `remove` takes labels back. Answers with the object's labels."""
        from headwater.upkeep.labels import label_object, parse_facts

        return label_object(self._parts, id, parse_facts(labels), remove, customer=customer, by=by)

    def thread(self, id: str, *, customer: str | None = None) -> dict[str, Any]:
        """A conversation: its objects in the order in which they happened, with what each says."""
        from headwater.upkeep.conversation import read_conversation

        parts = self._parts
        hidden = parts.book().hidden()
        return read_conversation(parts.reader, parts.ledger, id, customer=customer, hidden=hidden)
