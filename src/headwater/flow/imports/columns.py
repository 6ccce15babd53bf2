"""Columns: which of a source's columns is which field of an event; all others are its meta."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from headwater.errors import InvalidRequest

FIELDS: Final = ("id", "customer", "at", "text", "file", "thread", "meta")
# As events and tables call them; what was exported is imported as it is.
_ALSO: Final = {"event_id": "id", "occurred_at": "at"}


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """`given` are fields and the columns that the caller named for them; other fields have the column of their name."""

    given: Mapping[str, str]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Self:
        """`id=ticket,customer=account`, once or several times."""
        given: dict[str, str] = {}
        for pair in (part for text in texts for part in text.split(",") if part.strip()):
            field, sign, column = (word.strip() for word in pair.partition("="))
            if field not in FIELDS or not sign or not column:
                raise InvalidRequest(f"{pair!r} maps nothing. Write FIELD=COLUMN; fields are {', '.join(FIELDS)}.")
            given[field] = column
        return cls(given)

    @classmethod
    def of(cls, given: Mapping[str, str] | None) -> Self:
        if unknown := sorted(set(given or ()) - set(FIELDS)):
            raise InvalidRequest(f"There is no field {unknown[0]}. Map one of {', '.join(FIELDS)}.")
        return cls(dict(given or {}))

    def of_columns(self, columns: Sequence[str], source: str) -> dict[str, str]:
        """Of each column that is a field, which; all others are meta. InvalidRequest where none is a message."""
        if missing := sorted(set(self.given.values()) - set(columns)):
            raise InvalidRequest(f"{source} has no column {missing[0]}. Its columns are {_listed(columns)}.")
        mapped = {column: field for field, column in self.given.items()}
        for column in columns:
            field = _field_of(column)
            if field and column not in mapped and field not in mapped.values():
                mapped[column] = field
        if not {"text", "file"} & set(mapped.values()):
            raise InvalidRequest(
                f"No column of {source} is the text or the file. Name it: --map text=…, of {_listed(columns)}."
            )
        return mapped

    def of_row(self, names: Sequence[str]) -> dict[str, str]:
        """The same, of rows that each have their own names."""
        chosen = {column: field for field, column in self.given.items() if column in names}
        for name in names:
            field = _field_of(name)
            if field and field not in self.given and name not in chosen and field not in chosen.values():
                chosen[name] = field
        return chosen


def _field_of(column: str) -> str | None:
    name = column.strip().lower()
    field = _ALSO.get(name, name)
    return field if field in FIELDS else None


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns[:20]) + (", …" if len(columns) > 20 else "") if columns else "none"
