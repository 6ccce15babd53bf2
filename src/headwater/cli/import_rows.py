"""`headwater put --from`: rows of a table as messages and files, and what is shown of them."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headwater.cli.session import Session
from headwater.errors import DataFault, InvalidRequest

if TYPE_CHECKING:
    from headwater.flow.imports.import_rows import Reject
    from headwater.flow.imports.row_source import Row

_REJECTS_TOLD: Final = 1_000  # in JSON; a file of rejects has all of them
_LETTERS_TOLD: Final = 4 << 20  # of all those rows together
_LINES_SHOWN: Final = 5


def import_rows(
    session: Session,
    names: Sequence[str],
    pairs: Sequence[str],
    *,
    customer: str | None,
    at: datetime | None,
    meta: dict[str, str] | None,
    thread: str | None,
    dry_run: bool,
    encoding: str | None,
    delimiter: str | None,
    rejects: Path | None,
) -> None:
    from headwater.cli.progress import RowBar
    from headwater.flow.imports.columns import ColumnMap

    told: list[dict[str, Any]] = []
    letters = 0
    about: dict[str, Any] = {"customer": customer, "at": at, "encoding": encoding, "delimiter": delimiter}
    about |= {"meta": meta, "thread": thread}
    with ExitStack() as stack:
        lake, bar = stack.enter_context(session.open()), stack.enter_context(RowBar())
        file = stack.enter_context(_opened(rejects)) if rejects is not None else None

        def note(reject: "Reject", row: "Row") -> None:
            nonlocal letters
            if file is None and (len(told) >= _REJECTS_TOLD or letters >= _LETTERS_TOLD):
                return
            document = {**reject.to_dict(), "row": dict(row.values)}
            line = json.dumps(document, ensure_ascii=False, default=str)
            if len(told) < _REJECTS_TOLD and letters < _LETTERS_TOLD:
                told.append(document)
                letters += len(line)
            if file is not None:
                file.write(line + "\n")

        mapped = ColumnMap.parse(pairs).given
        try:
            imported = lake.put_rows(
                list(names), map=mapped, dry_run=dry_run, on_reject=note, progress=bar.advance, **about
            )
        except KeyboardInterrupt:
            if not dry_run:
                session.note(_how_far(bar.rows, rejects))
            raise
    session.show({**imported.to_dict(), "rejects": told}, draw)
    if imported.rejected:
        click.get_current_context().exit(DataFault.exit_code)


def _how_far(rows: int, rejects: Path | None) -> str:
    from headwater.cli.output import plural

    again = ", with another file for --rejects" if rejects is not None else ""
    return f"{plural(rows, 'row')} taken by now. The same import again goes on: what is in changes nothing{again}."


def _opened(path: Path) -> Any:
    try:
        return path.open("x", encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(
            f"{path} cannot be written anew: {error.strerror}. Name a file that is not there."
        ) from error


def draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import one_line, plural, say, table, text

    for name, columns in document["columns"].items() if document["dry_run"] else ():
        say(f"{name}: " + ", ".join(f"{column} → {field}" for column, field in columns.items()))
    if document["preview"]:
        shown = ("line", "id", "customer", "at", "text or file", "thread", "meta")
        table(shown, [[one_line(cell, 40) for cell in _cells(row)] for row in document["preview"]], cut=True)
    for about in document["reasons"]:
        first = ", ".join(map(_line, about["first"][:_LINES_SHOWN]))
        more = ", …" if about["rows"] > _LINES_SHOWN else ""
        say(text(f"{'rejected':<13}", "red"), f"  {plural(about['rows'], 'row')}: {about['reason']} ({first}{more})")
    known = f", {document['known']:,} the same as an earlier row" if document["known"] else ""
    rows = plural(document["rows"], "row")
    if document["dry_run"]:
        good = document["rows"] - document["rejected"] - document["known"]
        say(f"{rows}: {good:,} would be put{known}. Nothing was stored; leave --dry-run out to put.")
    else:
        say(f"{rows}: {document['stored']:,} put{known}, {document['rejected']:,} rejected")


def _line(place: dict[str, Any]) -> str:
    earlier = place.get("earlier")
    if earlier is None:
        return f"line {place['line']}"
    where = "" if earlier["source"] == place["source"] else f" of {earlier['source']}"
    return f"line {place['line']} as line {earlier['line']}{where}"


def _cells(row: dict[str, Any]) -> list[str]:
    says = row.get("text") or row.get("file") or ""
    meta = json.dumps(row["meta"], ensure_ascii=False) if row.get("meta") else ""
    cells = (row["line"], row["event_id"], row["customer"], row["occurred_at"], says, row.get("thread"), meta)
    return ["" if cell is None else str(cell) for cell in cells]
