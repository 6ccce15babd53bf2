"""Lake tag: a name for what the whole lake was at one moment: a snapshot of every table, and which models were seen."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final, Self

from headwater.clock import parse_time
from headwater.domain.model_book import ModelBook
from headwater.domain.ref import Ref
from headwater.errors import Conflict, InvalidRequest

TAG, PIN, HOLD = "tag", "pin", "hold"
NAME_LETTERS_MAX: Final = 200
NOTE_LETTERS_MAX: Final = 1_000
_OURS: Final = ("main", "backup-", "headwater")
# A table that had nothing yet has no snapshot to be named: a property says that the tag means it empty.
EMPTY_AT: Final = "headwater.empty-at."


@dataclass(frozen=True, slots=True)
class LakeTag:
    """`kind` is `tag`; `pin`, which has an owner and an end; or `hold`, which nobody but its owner takes away. Of
    `snapshots` None is a table that had none yet. `models` is the model book as text, `embedded` how many rows of
    embeddings there were."""

    name: str
    kind: str
    made_at: str
    by: str
    note: str = ""
    until: str | None = None
    snapshots: Mapping[str, int | None] = field(default_factory=dict)
    models: str = ""
    embedded: int = 0

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def to_text(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    def to_dict(self) -> dict[str, Any]:
        """As people see it: a snapshot's id has more digits than a page's numbers."""
        snapshots = [{"table": table, "snapshot_id": number} for table, number in self.snapshots.items()]
        return {
            "name": self.name, "kind": self.kind, "made_at": self.made_at, "by": self.by, "note": self.note,
            "until": self.until, "embedded": self.embedded, "snapshots": snapshots,
        }  # fmt: skip

    @property
    def book(self) -> ModelBook:
        return ModelBook.from_text(self.models or None)

    def has_ended(self, now: datetime) -> bool:
        return self.until is not None and parse_time(self.until) <= now

    def require_may_go(self, by: str) -> None:
        if self.kind == HOLD and by != self.by:
            raise Conflict(f"{self.name} is a hold of {self.by}, who alone may lift it: --by {self.by}")


def check_name(name: str) -> str:
    """It must mean a tag wherever a ref is taken, and not one of our own."""
    if not 0 < len(name) <= NAME_LETTERS_MAX or not name.isprintable() or name != name.strip():
        raise InvalidRequest(f"A tag's name has 1 to {NAME_LETTERS_MAX} letters that can be printed.")
    if Ref.parse(name).name != name:
        raise InvalidRequest(f"{name} would be read as a snapshot or a time. Begin a tag's name with a word.")
    if name.startswith(_OURS):
        raise InvalidRequest(f"Names that begin with {', '.join(_OURS)} are Headwater's own. Take another.")
    return name
