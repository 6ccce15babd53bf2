"""Labels: what people say of an object after it came, as the ledger knows it: a key and a value, by whom and when.

An object has one value of each key; another one takes its place, and who removes a key has it gone. A label counts more
than a fact of the same key that came with the object. Backups and migrations carry them. Twice is once.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from headwater.clock import to_text
from headwater.storage.ledger.ledger import Ledger

_COLUMNS: Final = "object_id, key, value, labelled_at, labelled_by"


@dataclass(frozen=True, slots=True)
class Label:
    """Of an object: what was said of it, when and by whom."""

    object_id: str
    key: str
    value: str
    labelled_at: str
    labelled_by: str

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


def set_labels(ledger: Ledger, object_id: str, labels: Mapping[str, str], *, now: datetime, by: str) -> None:
    """Who said the same before stays the one who said it."""
    with ledger._database.transaction() as run:
        for key, value in labels.items():
            same = run("select 1 from labels where object_id = ? and key = ? and value = ?", (object_id, key, value))
            if same:
                continue
            run("delete from labels where object_id = ? and key = ?", (object_id, key))
            row = (object_id, key, value, to_text(now), by)
            run(f"insert into labels ({_COLUMNS}) values (?, ?, ?, ?, ?)", row)


def remove_labels(ledger: Ledger, object_id: str, keys: Collection[str]) -> None:
    with ledger._database.transaction() as run:
        for key in keys:
            run("delete from labels where object_id = ? and key = ?", (object_id, key))


def labels_of(ledger: Ledger, object_id: str) -> list[Label]:
    query = f"select {_COLUMNS} from labels where object_id = ? order by key"
    return [Label(*row) for row in ledger._database.query(query, (object_id,))]


def labels_by_key(ledger: Ledger, key: str) -> dict[str, str]:
    """Of each object that has a label of this key, its value."""
    return dict(ledger._database.query("select object_id, value from labels where key = ?", (key,)))


def read_labels(ledger: Ledger) -> Iterator[Label]:
    """All of them."""
    for row in ledger._database.query(f"select {_COLUMNS} from labels order by labelled_at, object_id, key", ()):
        yield Label(*row)
