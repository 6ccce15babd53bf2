"""`headwater put --watch`: files are told as they are put; Ctrl-C or SIGTERM ends it, after the work under way."""

from typing import Any

from headwater.cli.session import Session
from headwater.errors import InvalidRequest


def watch_files(session: Session, sources: tuple[str, ...], **how: Any) -> None:
    from headwater.cli.commands.put import Tally, draw
    from headwater.cli.progress import stoppable

    if not sources:
        raise InvalidRequest("Nothing to watch: name directories, globs or files.")
    tally = Tally(every=session.as_json)
    with stoppable() as stop, session.open() as lake:
        session.note(f"Watching {', '.join(sources)}. Ctrl-C ends it.")
        for landed in lake.watch(*sources, stop=stop, **how):
            tally.add(landed)
            session.note(f"{landed.status}  {landed.source}{f': {landed.error}' if landed.error else ''}")
    session.show(tally.to_dict(), draw)
