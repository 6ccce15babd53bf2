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
    about: dict[str, Any] = {"customer": customer, "at": at, "encoding": encoding, "delimiter": delimiter}
    about |= {"meta": meta, "thread": thread}
    with ExitStack() as stack:
        lake, bar = stack.enter_context(session.open()), stack.enter_context(RowBar())
        file = stack.enter_context(_opened(rejects)) if rejects is not None else None

        def note(reject: "Reject", row: "Row") -> None:
            document = {**reject.to_dict(), "row": dict(row.values)}
            if len(told) < _REJECTS_TOLD:
                told.append(document)
            if file is not None:
                file.write(json.dumps(document, ensure_ascii=False, default=str) + "\n")

        mapped = ColumnMap.parse(pairs).given
        imported = lake.put_rows(
            list(names), map=mapped, dry_run=dry_run, on_reject=note, progress=bar.advance, **about
        )
    session.show({**imported.to_dict(), "rejects": told}, draw)
    if imported.rejected:
        click.get_current_context().exit(DataFault.exit_code)


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
        first = ", ".join(f"line {place['line']}" for place in about["first"][:_LINES_SHOWN])
        more = ", …" if about["rows"] > _LINES_SHOWN else ""
        say(text(f"{'rejected':<13}", "red"), f"  {plural(about['rows'], 'row')}: {about['reason']} ({first}{more})")
    if document["dry_run"]:
        good = document["rows"] - document["rejected"]
        say(
            f"{plural(document['rows'], 'row')}: {good:,} would be put. Nothing was stored; leave --dry-run out to put."
        )
    else:
        say(f"{plural(document['rows'], 'row')}: {document['stored']:,} put, {document['rejected']:,} rejected")


def _cells(row: dict[str, Any]) -> list[str]:
    says = row.get("text") or row.get("file") or ""
    meta = json.dumps(row["meta"], ensure_ascii=False) if row.get("meta") else ""
    cells = (row["line"], row["event_id"], row["customer"], row["occurred_at"], says, row.get("thread"), meta)
    return ["" if cell is None else str(cell) for cell in cells]
