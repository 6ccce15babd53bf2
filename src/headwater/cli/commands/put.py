"""`headwater put`"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headwater.cli.session import Moment, Session, with_session
from headwater.errors import HeadwaterError, InvalidRequest

if TYPE_CHECKING:
    from headwater.flow.landed import Landed
    from headwater.lake import Lake

STDIN: Final = "-"
_ONE_ID: Final = "--id names one thing, but several were given. Put them one by one, or leave --id out."
_NO_ENDING: Final = "no ending"
_OF_WATCH: Final = ("sources", "customer", "follow_links", "skip_unsupported", "meta", "thread")
_SHOWN_MAX: Final = 50  # a person reads failures, not ten thousand successes


@click.command(
    short_help="Store files or text.",
    help="Store files, directories or globs ('-' for lines of text on stdin), or --text, and announce them.",
    epilog="""Examples:

\b
  headwater put recordings/ 'screens/*.png' --customer acme
  headwater put call.wav --customer acme --at 2026-01-31 --meta channel=phone
  headwater put --text "My router is broken" --customer globex
  headwater put --from tickets.csv --map id=ticket,text=body --dry-run""",
)
@click.argument("sources", nargs=-1, metavar="[FILE|DIR|GLOB]…")
@click.option("--text", "texts", multiple=True, help="A chat message instead of files.")
@click.option(
    "--customer", metavar="NAME", help="Whose it is; of --from, of rows that do not say. Default: put.customer."
)
@click.option("--id", "event_id", metavar="ID", help="The event's id: the same id twice is one event.")
@click.option("--id-prefix", metavar="PREFIX", help="Of lines on stdin: their ids are PREFIX-1, PREFIX-2, and so on.")
@click.option("--at", type=Moment(), metavar="TIME", help="When it happened. Default: the file's time; now for text.")
@click.option("--follow-links", is_flag=True, help="Follow links in directories and globs, too.")
@click.option("--skip-unsupported", is_flag=True, help="Leave out files of kinds that are not taken; no failure.")
@click.option("--meta", "facts", multiple=True, metavar="KEY=VALUE", help="What is known of them beside the bytes.")
@click.option("--thread", metavar="ID", help="The conversation that they belong to.")
@click.option("--watch", is_flag=True, help="Go on looking, put files when they stop growing; Ctrl-C ends it.")
@click.option("--from", "tables", multiple=True, metavar="FILE|DIR|-", help="Rows of CSV, JSON lines or Parquet.")
@click.option(
    "--map", "pairs", multiple=True, metavar="FIELD=COLUMN,…", help="Of --from: id=ticket,text=body, and so on."
)
@click.option("--dry-run", is_flag=True, help="Of --from: show the first rows and what is wrong, store nothing.")
@click.option("--encoding", metavar="NAME", help="Of --from: such as latin-1. Default: UTF-8.")
@click.option("--delimiter", metavar="SIGN", help="Of --from: between cells. Default: as the header has it.")
@click.option("--rejects", type=click.Path(path_type=Path), metavar="FILE", help="Of --from: write bad rows there.")
@with_session
def command(session: Session, tables: tuple[str, ...], pairs: tuple[str, ...], **given: Any) -> None:
    from headwater.domain.meta import parse_fact

    given |= {"meta": dict(map(parse_fact, given.pop("facts"))) or None}
    rows = {name: given.pop(name) for name in ("dry_run", "encoding", "delimiter", "rejects")}
    if tables:
        from headwater.cli.import_rows import import_rows

        if given["sources"] or given["texts"] or given["event_id"] or given["id_prefix"]:
            raise InvalidRequest(
                "--from stands alone: its rows name their texts, files and ids. Put others by themselves."
            )
        import_rows(
            session, tables, pairs, **{name: given[name] for name in ("customer", "at", "meta", "thread")}, **rows
        )
        return
    if pairs or any(rows.values()):
        raise InvalidRequest("--map, --dry-run, --encoding, --delimiter and --rejects are of --from. Name its file.")
    if given.pop("watch"):
        from headwater.cli.watch_files import watch_files

        if given["texts"] or given["event_id"] or given["id_prefix"] or given["at"] or STDIN in given["sources"]:
            raise InvalidRequest("--watch is for files and directories alone. Put texts, ids and times by themselves.")
        watch_files(session, **{name: given[name] for name in _OF_WATCH})
        return
    put_things(session, **given)


def put_things(session: Session, sources: tuple[str, ...], texts: tuple[str, ...], **about: Any) -> None:
    from headwater.cli.progress import Bars

    tally = Tally(every=session.as_json)
    with session.open() as lake, Bars({"put": None}, lines=False) as bars:
        for landed in _land(lake, sources, texts, **about):
            tally.add(landed)
            bars.advance("put", 1)
    session.show(tally.to_dict(), draw)
    if tally.first_error:
        click.get_current_context().exit(tally.first_error.exit_code)


def _land(
    lake: "Lake",
    sources: tuple[str, ...],
    texts: tuple[str, ...],
    customer: str | None,
    event_id: str | None,
    id_prefix: str | None,
    at: datetime | None,
    follow_links: bool,
    skip_unsupported: bool,
    **known: Any,
) -> "Iterator[Landed]":
    if not sources and not texts:
        raise InvalidRequest("Nothing to put: name files, directories or globs, or give --text.")
    if event_id and len(sources) + len(texts) > 1:
        raise InvalidRequest(_ONE_ID)
    if files := [source for source in sources if source != STDIN]:
        how: dict[str, Any] = {"follow_links": follow_links, "skip_unsupported": skip_unsupported, **known}
        yield from lake.iter_put(*files, customer=customer, id=event_id, at=at, **how)
    for text in texts:
        yield _land_text(lake, text, customer, event_id, at, known)
    if STDIN in sources:
        yield from _land_stdin(lake, customer, event_id, id_prefix, at, known)


def _land_text(
    lake: "Lake", text: str, customer: str | None, event_id: str | None, at: datetime | None, known: dict[str, Any]
) -> "Landed":
    """One that is no good is a result, as a file is."""
    from headwater.flow.landed import Landed

    try:
        return lake.put_text(text, customer=customer, id=event_id, at=at, **known)
    except HeadwaterError as error:
        return Landed("--text", "failed", error=error)


def _land_stdin(
    lake: "Lake",
    customer: str | None,
    event_id: str | None,
    id_prefix: str | None,
    at: datetime | None,
    known: dict[str, Any],
) -> "Iterator[Landed]":
    from headwater.cli.stdin_lines import stdin_lines

    lines: Iterable[bytes | str | None] = stdin_lines()
    if event_id:
        lines = list(islice((line for line in lines if line and line.strip()), 2))
        if len(lines) > 1:
            raise InvalidRequest(_ONE_ID)
    yield from lake.iter_put_lines(lines, customer=customer, id=event_id, id_prefix=id_prefix, at=at, **known)


class Tally:
    """What a person or a program is told at the end. Ten million lines may pass: a person needs few of them."""

    def __init__(self, *, every: bool) -> None:
        self._every = every
        self._results: list[dict[str, Any]] = []
        self._skipped: list[dict[str, Any]] = []
        self._counts = {"stored": 0, "already there": 0, "failed": 0}
        self._unsupported: Counter[str] = Counter()
        self.first_error: HeadwaterError | None = None

    def add(self, landed: "Landed") -> None:
        if landed.unsupported is not None:
            self._unsupported[landed.unsupported or _NO_ENDING] += 1
        if landed.status == "skipped":
            unsupported = {} if landed.unsupported is None else {"unsupported": landed.unsupported}
            self._skipped.append({"source": landed.source, "reason": landed.reason, **unsupported})
            return
        self.first_error = self.first_error or landed.error
        self._counts[landed.status] += 1
        good = sum(self._counts.values()) - self._counts["failed"]
        if self._every or landed.error or good <= _SHOWN_MAX:
            self._results.append(_result(landed))

    def to_dict(self) -> dict[str, Any]:
        summary = {name.replace(" ", "_"): count for name, count in self._counts.items()}
        return {
            "results": self._results,
            "summary": summary,
            "skipped": self._skipped,
            "unsupported": dict(self._unsupported.most_common()),
        }


def _result(landed: "Landed") -> dict[str, Any]:
    event, error = landed.event, landed.error
    return {
        "source": landed.source,
        "status": landed.status.replace(" ", "_"),
        "id": event.event_id if event else None,
        "path": event.pointer.path if event else None,
        "size": event.pointer.size if event else None,
        "error": {"kind": error.kind, "message": str(error), "retryable": error.retryable} if error else None,
        **({} if landed.unsupported is None else {"unsupported": landed.unsupported}),
    }


def draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import plural, say, text
    from headwater.domain.keys import shown_path
    from headwater.domain.quantities import size

    results, summary, skipped = document["results"], document["summary"], document["skipped"]
    groups = document["unsupported"] if sum(document["unsupported"].values()) > 1 else {}
    for result in results:
        if not result["error"]:
            status = text(f"{result['status'].replace('_', ' '):<13}", "green")
            say(status, f"  {shown_path(result['path'])}  {size(result['size'])}")
    if (good := summary["stored"] + summary["already_there"]) > _SHOWN_MAX:
        say(f"… and {good - _SHOWN_MAX:,} more")
    for found in [found for found in skipped if "unsupported" not in found or not groups][:_SHOWN_MAX]:
        say(text(f"{'skipped':<13}", "yellow"), f"  {found['reason']}")
    for result in results:
        if result["error"] and ("unsupported" not in result or not groups):
            say(text(f"{'failed':<13}", "red"), f"  {result['source']}: {result['error']['message']}")
    if groups:
        _draw_unsupported(groups, failed=any("unsupported" in result for result in results))
    counts = {**summary, "skipped": len(skipped)}
    totals = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count)
    say(f"{plural(sum(counts.values()), 'item')}: {totals or 'nothing matched'}")


def _draw_unsupported(groups: dict[str, int], *, failed: bool) -> None:
    """Files of kinds that are not taken, by their endings, however many there are."""
    from headwater.cli.output import plural, say, text

    listed = ", ".join(f"{count:,} {ending}" for ending, count in groups.items())
    kinds = f"{plural(sum(groups.values()), 'file')} of kinds that are not taken: {listed}."
    if failed:
        say(text(f"{'failed':<13}", "red"), f"  {kinds} Leave them out: --skip-unsupported")
    else:
        say(text(f"{'skipped':<13}", "yellow"), f"  {kinds}")
