"""How far a table has come, kept as table properties and committed together with its rows.

`headwater.next_seq`    the seq of the next row
`headwater.consumed`    per upstream, how far it was read: JSON {"log": {"0": 17}} or {"bronze.events": 17}
`headwater.duplicates`  how many events were seen again with the same content (bronze only)
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

NEXT_SEQ: Final = "headwater.next_seq"
CONSUMED: Final = "headwater.consumed"
DUPLICATES: Final = "headwater.duplicates"

# Upstream → the next position to read: a seq for tables, an offset per partition for the log.
Positions = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    next_seq: int = 0
    consumed: Mapping[str, Any] = field(default_factory=dict)
    duplicates: int = 0

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        return cls(
            next_seq=int(properties.get(NEXT_SEQ, 0)),
            consumed=json.loads(properties.get(CONSUMED, "{}")),
            duplicates=int(properties.get(DUPLICATES, 0)),
        )

    def to_properties(self) -> dict[str, str]:
        return {
            NEXT_SEQ: str(self.next_seq),
            CONSUMED: json.dumps(self.consumed, sort_keys=True),
            DUPLICATES: str(self.duplicates),
        }

    def seq_of(self, upstream: str) -> int:
        """How far a table upstream was read."""
        return int(self.consumed.get(upstream, 0))

    @property
    def offsets(self) -> dict[int, int]:
        """How far each partition of the log was read."""
        return {int(partition): offset for partition, offset in self.consumed.get("log", {}).items()}

    def advanced(self, consumed: Positions, *, rows: int, duplicates: int) -> Self:
        return type(self)(self.next_seq + rows, {**self.consumed, **consumed}, self.duplicates + duplicates)
