"""A small lake with something in every table, made without Spark, for tests of what only reads; and the live parts of a
lake, for tests that look behind its face."""

import weakref
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from sample_rows import append, rows

from headwater import lake as lakes
from headwater.components import Components
from headwater.domain import tables
from headwater.domain.progress import CONSUMED, DUPLICATES, NEXT_SEQ
from headwater.domain.tables import CAPTIONS, EMBEDDINGS, EVENTS, MESSAGES, METADATA, QUARANTINE, TRANSCRIPTS
from headwater.flow.models.port import Model
from headwater.flow.models.registry import load_model
from headwater.settings import BY_NAME
from headwater.storage.tables import catalog as catalogs

CALL: Final = "audio/acme/2026-03-01/call.wav"
SCREEN: Final = "images/globex/2026-03-01/screen.png"
CHAT: Final = "chat/acme/m1"
CALL_BYTES: Final = b"RIFF of a call"
# A transcript may hold anything; a terminal must not obey it.
SAID: Final = "the refund never \x1b[31marrived\x1b]0;owned\x07 \x9b5m\u202ehere"
SHOWN: Final = "Error 502 bad gateway on the billing page"
_CHUNKS: Final = {CALL: "c" * 24, SCREEN: "d" * 24, CHAT: "e" * 24}
CALL_CHUNK: Final = _CHUNKS[CALL]
_PARTS: "weakref.WeakKeyDictionary[lakes.Lake, Components]" = weakref.WeakKeyDictionary()


def parts_of(lake: lakes.Lake) -> Components:
    """A lake's parts, opened by its settings beside those that it holds itself, as another process would.

    The same ones at each call, so that one clock and one Spark session serve a test; they end with the lake.
    """
    if lake not in _PARTS:
        _PARTS[lake] = Components(lake.settings)
        weakref.finalize(lake, _PARTS[lake].close).atexit = False
    return _PARTS[lake]


@lru_cache
def loaded_model(name: str) -> Model:
    """An embedder is loaded, of others the card is enough."""
    model = load_model(name)
    if model.card.produces == "vector":
        model.load()
    return model


def label_of(setting: str) -> str:
    """Of what a new lake on this machine begins with."""
    return loaded_model(str(BY_NAME[setting].default_here().value)).card.label


def small_lake(directory: Path) -> Path:
    """One call, one screenshot, one chat line, one broken file; indexed, nothing pending."""
    with lakes.init(directory) as lake:
        parts = parts_of(lake)
        pointer = parts.raw_store.put_bytes(CALL, CALL_BYTES, "audio/wav").to_dict()
        parts.raw_store.put_bytes(SCREEN, b"PNG", "image/png")
        call = {"customer": "acme", "modality": "audio", "event_id": "e1", "object_id": CALL, "pointer": pointer}
        screen = {"customer": "globex", "modality": "image", "event_id": "e2", "object_id": SCREEN}
        chat = {"customer": "acme", "modality": "chat", "event_id": "m1", "object_id": CHAT}
        _add(lake, EVENTS, [call, screen, {**chat, "text": "hello there"}], {CONSUMED: "{}", DUPLICATES: "7"})
        _add(lake, METADATA, [{**call, **_made("probe", "probe 1")}, {**screen, **_made("probe", "probe 1")}])
        heard = _made("transcribe", label_of("models.transcribe"))
        _add(lake, TRANSCRIPTS, [{**call, **heard, "text": SAID, "confidence": 0.6}])
        _add(lake, CAPTIONS, [{**screen, **_made("caption", label_of("models.caption")), "text": SHOWN}])
        _add(lake, MESSAGES, [{**chat, **_made("message", "inline 1"), "text": "hello there"}])
        bad = {"event_id": "e3", "object_id": "audio/acme/2026-03-01/cut.wav", "customer": "acme", "step": "probe"}
        _add(lake, QUARANTINE, [{**bad, "reason": "TRUNCATED", "detail": "it ends \x1b[2Jearly", "attempts": 1}])
        _embed(lake, [(call, TRANSCRIPTS, SAID), (screen, CAPTIONS, SHOWN), (chat, MESSAGES, "hello there")])
    return directory


def _made(step: str, model: str) -> dict[str, Any]:
    return {"step": step, "model": model, "fingerprint": f"{step}-print"}


def _add(
    lake: lakes.Lake, table: tables.Table, given: list[dict[str, Any]], properties: dict[str, str] | None = None
) -> None:
    catalog = parts_of(lake).catalog
    append(catalog.load_table(table.name), rows(table, given), table.day)
    consumed = '{"bronze.events": 3}' if table not in {EVENTS, EMBEDDINGS} else "{}"
    changes = {NEXT_SEQ: str(len(given)), CONSUMED: consumed, **(properties or {})}
    catalogs.set_properties_if(catalog, table.name, {}, changes)


def _embed(lake: lakes.Lake, texts: list[tuple[dict[str, Any], tables.Table, str]]) -> None:
    embedder = loaded_model(lake.settings.text("models.embed"))
    given = [
        {
            **about,
            **_made("embed", embedder.card.label),
            "fingerprint": embedder.card.fingerprint,
            "chunk_id": _CHUNKS[about["object_id"]],
            "source_table": table.name,
            "source_model": label_of("models.transcribe" if table is TRANSCRIPTS else "models.caption"),
            "text": text,
            "locator": {"start_ms": 65_000, "end_ms": 71_500} if table is TRANSCRIPTS else None,
            "vector": embedder.run([text])[0],
        }
        for about, table, text in texts
    ]
    read = '{"silver.transcripts": 1, "silver.captions": 1, "silver.messages": 1}'
    _add(lake, EMBEDDINGS, given, {CONSUMED: read})
    parts_of(lake).index.upsert(rows(EMBEDDINGS, given))
    parts_of(lake).index.set_position(len(given))
