"""Headwater: a lake with the cheap models, run once, in a stream, and replayed with the changed call step.

Landing is measured apart, since the others read files where they lie. The flow also embeds and indexes, which the
others do not; the stages are told one by one, so that the table can show both.
"""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headwater
from headwater.clock import parse_time
from headwater.components import Components
from headwater.domain.event import Event
from headwater.flow.land_text import text_event
from headwater.lake import Lake
from headwater.setting import Value
from headwater.settings import load
from peers import job

SETTINGS = f'[models]\ntranscribe = "{job.FIRST}"\ncaption = "features:PictureFeatures"\nembed = "lexical"\n'
AT = parse_time("2026-03-01")
STREAM: dict[str, Value] = {"run.trigger_seconds": 0.2, "run.freshness_seconds": 0}
LOOK_SECONDS = 0.1
STREAM_SECONDS = 300.0


def land(drop: Path, state: Path) -> None:
    """Every file and line of a directory, published as events."""
    state.mkdir(parents=True, exist_ok=True)
    (state / "headwater.toml").write_text(SETTINGS)
    with headwater.init(state) as lake:
        _land(drop, lake)


def update(inbox: Path, state: Path) -> None:
    parts = Components(load(state))
    with Lake(parts) as lake:
        if lake.pending():
            parts.spark_and_index()  # as the run would
            _tell("start", 1)
        lake.run(report=_tell)


def imports(inbox: Path, state: Path) -> None:
    """Nothing but what a run loads before it can know that there is nothing to do; most of it this module loads."""
    import obstore
    import pyarrow

    del obstore, pyarrow


def change(inbox: Path, state: Path) -> None:
    parts = Components(load(state))
    with Lake(parts) as lake:
        models: Any = getattr(lake, "models", None)
        if models is None:
            raise SystemExit("this Headwater has no replay yet")
        parts.spark_and_index()
        _tell("start", 1)
        models.replay("transcribe", job.CHANGED, report=_tell)
        models.activate("transcribe", job.OtherCallFeatures.card.label)


def stream(drop: Path, state: Path) -> None:
    """Seconds from the end of landing until all is derived, and until all can be found, in a running stream."""
    stop = threading.Event()
    with headwater.open(state, STREAM) as lake:
        running = threading.Thread(target=lambda: lake.run(once=False, stop=stop), name="run")
        running.start()
        try:
            _land(drop / "warm", lake)
            _until(lake, searchable=True)
            time.sleep(2)
            _land(drop / "later", lake)
            landed = time.monotonic()
            derived = _until(lake, searchable=False) - landed
            searchable = _until(lake, searchable=True) - landed
        finally:
            stop.set()
            running.join()
    print(json.dumps({"told": {"derived": round(derived, 2), "searchable": round(searchable, 2)}}), flush=True)


def rows(state: Path) -> Iterator[job.Row]:
    query = """
        with said as (from transcripts union all by name from captions union all by name from messages)
        select case when said.modality = 'chat' then said.event_id else split_part(said.object_id, '/', -1) end as id,
               said.text, duration_ms, width, height
        from said left join metadata using (object_id)
    """
    with headwater.open(state) as lake:
        for row in lake.sql(query)["rows"]:
            yield tuple(row.values())


def _land(drop: Path, lake: Lake) -> None:
    for kind in ("calls", "pictures"):
        lake.put(drop / kind, customer="bench", at=AT)
    lines = [line for file in sorted((drop / "chat").iterdir()) for line in file.read_text().splitlines()]
    events: list[Event] = [text_event(line, "bench", job.message_id(line), AT) for line in lines]
    Components(lake.settings).log.publish(events)


def _until(lake: Lake, *, searchable: bool) -> float:
    """When nothing is pending: of all stages, or of the first two."""
    deadline = time.monotonic() + STREAM_SECONDS
    while time.monotonic() < deadline:
        pending = lake.pending()
        if not (pending if searchable else pending.bronze + pending.derive):
            return time.monotonic()
        time.sleep(LOOK_SECONDS)
    raise SystemExit(f"the stream did not come to an end in {STREAM_SECONDS:.0f} s: {lake.pending()}")


def _tell(stage: str, done: int) -> None:
    print(json.dumps({"stage": stage, "done": done}), flush=True)
