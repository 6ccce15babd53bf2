"""What a Spark worker does with texts: cut them into chunks, ask the memo, else the model; check what it answers.

Chunks go to the model in batches of its own size, neighbours in length together, equal texts once. What a vector cost
is noted with it. A useless vector costs one row; a model that does not answer stops the batch, and what it had answered
is remembered.
"""

import base64
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater import faults
from headwater.domain.chunks import chunks_of
from headwater.domain.groups import grouped
from headwater.domain.tables import EMBEDDINGS
from headwater.errors import DataFault, Unavailable
from headwater.flow.models.port import Embedded, Model, ModelCard
from headwater.flow.models.registry import load_model
from headwater.flow.models.vectors import checked_vector
from headwater.settings import Settings
from headwater.storage.memo import Memo, open_memo

STEP: Final = "embed"
OUTPUT: Final = pa.schema(
    [
        *(field.with_nullable(True) for field in EMBEDDINGS.schema if field.name != "seq"),
        pa.field("remembered", pa.bool_()),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
    ]
)
# Texts of this many rows are in a worker's memory at a time; a vector weighs 4 kB.
_ROWS_AT_ONCE: Final = 512
_ABOUT: Final = ("object_id", "customer", "modality", "event_id", "occurred_at", "pointer")

Row = dict[str, Any]
Answer = dict[str, Any]  # vector and effort, or {"reason", "detail"}


@dataclass(frozen=True, slots=True)
class EmbedWork:
    """All that travels to the workers. `afresh` names a wish to load the model anew, once a name."""

    name: str
    settings: Settings
    now: datetime
    afresh: str = ""


def embed_batches(work: EmbedWork) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        model = _loaded(work)
        memo = None if model.card.instant else _memo(work.settings)
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                rows = batch.slice(start, _ROWS_AT_ONCE).to_pylist()
                chunks = [chunk for row in rows for chunk in _chunk_rows(row)]
                yield pa.RecordBatch.from_pylist(_embedded(chunks, model, memo, work.now), schema=OUTPUT)

    return run


_models: dict[tuple[str, str], tuple[str, Model]] = {}
_memos: dict[str, Memo] = {}


def _loaded(work: EmbedWork) -> Model:
    """Once per Python worker, while its options are the same."""
    key = (work.name, repr(sorted(work.settings.models.get(work.name, {}).items())))
    if key not in _models or work.afresh not in {"", _models[key][0]}:
        model = load_model(work.name, work.settings.models)
        model.load()
        _models[key] = (work.afresh, model)
    return _models[key][1]


def _memo(settings: Settings) -> Memo:
    """Once per Python worker, looked at again for every task."""
    uri = settings.text("memo.uri")
    if uri not in _memos:
        _memos[uri] = open_memo(settings)
    _memos[uri].refresh()
    return _memos[uri]


def _chunk_rows(row: Mapping[str, Any]) -> Iterator[Row]:
    for number, chunk in enumerate(chunks_of(row["text"] or "", row["segments"] or [])):
        yield {
            **{name: row[name] for name in _ABOUT},
            "chunk": number,
            "source_table": row["source_table"],
            "source_fingerprint": row["fingerprint"],
            "source_model": row["model"],
            "text": chunk.text,
            "locator": chunk.locator.to_dict(),
        }


def _embedded(rows: list[Row], model: Model, memo: Memo | None, now: datetime) -> list[Row]:
    card = model.card
    answers = _answers([row["text"] for row in rows], model, memo)
    made = {"step": STEP, "model": card.label, "fingerprint": card.fingerprint, "derived_at": now}
    asked: set[str] = set()
    for row in rows:
        row.update(made, chunk_id=_chunk_id(row, card.fingerprint), **answers[row["text"]])
        row["remembered"] = row.get("remembered", False) or row["text"] in asked
        asked.add(row["text"])
    return rows


def _answers(texts: Sequence[str], model: Model, memo: Memo | None) -> dict[str, Answer]:
    card = model.card
    distinct = list(dict.fromkeys(texts))
    if memo is None:
        return _ask_all(distinct, model, lambda answers: None)
    shelf = memo.shelf(STEP, card.fingerprint)
    held = shelf.find([_checksum(text) for text in distinct])
    answers = {text: _unpacked(held[_checksum(text)]) for text in distinct if _checksum(text) in held}
    kept: dict[str, dict[str, Any]] = {}

    def remember(fresh: Mapping[str, Answer]) -> None:
        kept.update({_checksum(text): _packed(answer) for text, answer in fresh.items() if "vector" in answer})
        if card.price > 0 and kept:
            faults.point("embed.called")
            shelf.put(kept)
            faults.point("embed.memoised")
            kept.clear()

    try:
        answers |= _ask_all([text for text in distinct if text not in answers], model, remember)
    finally:
        if kept:
            shelf.put(kept)
    return answers


def _ask_all(texts: Sequence[str], model: Model, remember: Callable[[Mapping[str, Answer]], None]) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for batch in batches_of(texts, model.card):
        try:
            fresh = _ask(batch, model)
        except DataFault as fault:
            fresh = _one_by_one(batch, model, fault)
        except Unavailable as error:
            down = {"reason": "MODEL_DOWN", "detail": str(error)[:500]}
            return dict.fromkeys(texts, down) | answers
        remember(fresh)
        answers |= fresh
    return answers


def batches_of(texts: Sequence[str], card: ModelCard) -> Iterator[list[str]]:
    """As many as the model takes at once; padding costs least among texts of one length."""
    return grouped(
        sorted(texts, key=len),
        lambda text: len(text.encode()),
        most_bytes=card.batch_bytes,
        most_items=card.batch_items,
    )


def _one_by_one(batch: Sequence[str], model: Model, fault: DataFault) -> dict[str, Answer]:
    """One bad answer in a batch must not cost the others."""
    if len(batch) == 1:
        return {batch[0]: {"reason": fault.reason, "detail": fault.detail[:500]}}
    answers: dict[str, Answer] = {}
    for text in batch:
        try:
            answers |= _ask([text], model)
        except DataFault as own:
            answers[text] = {"reason": own.reason, "detail": own.detail[:500]}
    return answers


def _ask(batch: Sequence[str], model: Model) -> dict[str, Answer]:
    started = time.perf_counter()
    vectors = model.run(batch)
    seconds = (time.perf_counter() - started) / max(1, len(batch))
    if len(vectors) != len(batch):
        raise DataFault("BAD_OUTPUT", f"The model answered {len(vectors)} times to {len(batch)} texts.")
    told = [vector if isinstance(vector, Embedded) else Embedded(vector) for vector in vectors]
    return {
        text: {
            "vector": checked_vector(answer.vector, model.card),
            "model_seconds": seconds,
            "tokens": answer.tokens,
            # A call for a whole batch is shared out, so that what the rows cost adds up to what was paid.
            "cost": model.card.cost(tokens=answer.tokens) / (len(batch) if model.card.price_unit == "call" else 1),
            "attempts": answer.attempts,
            "remembered": False,
        }
        for text, answer in zip(batch, told, strict=True)
    }


def _packed(answer: Answer) -> dict[str, Any]:
    effort = {name: value for name, value in answer.items() if name not in {"vector", "remembered"}}
    return {**effort, "vector": base64.b64encode(answer["vector"].tobytes()).decode()}


def _unpacked(held: Mapping[str, Any]) -> Answer:
    vector = np.frombuffer(base64.b64decode(held["vector"]), dtype=np.float32)
    return {**held, "vector": vector, "remembered": True}


@lru_cache(maxsize=4_096)
def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _chunk_id(row: Mapping[str, Any], fingerprint: str) -> str:
    """Short, and the same for the same chunk in every run."""
    parts = (row["object_id"], row["source_table"], row["source_fingerprint"], str(row["chunk"]), fingerprint)
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
