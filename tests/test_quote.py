"""A quote of many objects: counted as they come, so that what it holds does not grow with the lake."""

import tracemalloc
from pathlib import Path
from typing import Any

from lakes import parts_of
from sample_rows import append, rows

from headwater import lake as lakes
from headwater.domain.progress import CONSUMED, NEXT_SEQ
from headwater.domain.tables import EVENTS, TRANSCRIPTS
from headwater.lake import Lake
from headwater.settings import FILE_NAME
from headwater.storage.memo.memo import open_memo
from headwater.storage.tables import catalog as catalogs
from headwater.upkeep.models.named import find_candidate

MODELS = """\
[models]
transcribe = "cheap_models:CheapSpeech"
embed = "lexical"
"""
LOUDER = "cheap_models:LouderSpeech"
DONE, REMEMBERED = 100, 50


def lake_of(directory: Path, objects: int) -> Lake:
    """Every content is there twice, far from one another; some objects are done, and some contents remembered."""
    directory.mkdir()
    (directory / FILE_NAME).write_text(MODELS, encoding="utf-8")
    lake = lakes.init(directory)
    pointer = {"path": "audio/acme/x.wav", "offset": 0, "size": 3, "content_type": "audio/wav"}
    about = {"customer": "acme", "modality": "audio", "first_of_object": True}
    given = [
        {"event_id": f"e{n}", "object_id": f"o{n}", "pointer": {**pointer, "checksum": _checksum(n, objects)}, **about}
        for n in range(objects)
    ]
    catalog = parts_of(lake).catalog
    append(catalog.load_table(EVENTS.name), rows(EVENTS, given))
    print_ = find_candidate(parts_of(lake), "transcribe", LOUDER).fingerprint
    made = {"customer": "acme", "step": "transcribe", "fingerprint": print_}
    append(
        catalog.load_table(TRANSCRIPTS.name), rows(TRANSCRIPTS, [{**made, "object_id": f"o{n}"} for n in range(DONE)])
    )
    read = {NEXT_SEQ: str(DONE), CONSUMED: f'{{"bronze.events": {objects}}}'}
    catalogs.set_properties_if(catalog, EVENTS.name, {}, {NEXT_SEQ: str(objects)})
    catalogs.set_properties_if(catalog, TRANSCRIPTS.name, {}, read)
    known: dict[str, Any] = {_checksum(DONE + n, objects): {"row": {}} for n in range(REMEMBERED)}
    open_memo(lake.settings).shelf("transcribe", print_).put(known, paid=True)
    return lake


def _checksum(number: int, objects: int) -> str:
    return f"{number % (objects // 2):064x}"


def test_objects_contents_and_what_is_remembered_are_counted_over_all_of_it(tmp_path: Path) -> None:
    with lake_of(tmp_path / "lake", 24_000) as lake:
        quote = lake.models.quote("transcribe", LOUDER)
        assert (quote.objects, quote.rows) == (24_000 - DONE, 24_000 - DONE)
        assert quote.remembered == 2 * REMEMBERED, "each content is there twice"
        assert quote.calls == 12_000 - REMEMBERED, "a content is asked for once, though one of its objects is done"
        assert quote.reads == {"standard": quote.objects - quote.remembered}
        assert quote.bytes == 3 * (quote.objects - quote.remembered)
        assert quote.places[0] == DONE and len(quote.bill) == quote.objects


def test_what_a_quote_holds_does_not_grow_with_the_objects(tmp_path: Path) -> None:
    peaks = []
    for objects in (40_000, 120_000):
        with lake_of(tmp_path / str(objects), objects) as lake:
            lake.models.quote("transcribe", LOUDER)  # what is loaded once is not counted
            tracemalloc.start()
            lake.models.quote("transcribe", LOUDER)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0], peaks
