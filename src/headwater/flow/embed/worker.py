"""What a Spark worker does with texts: cut them into chunks, ask the memo, else the model; answer with rows.

Chunks go to the model in batches of its own size, neighbours in length together, equal texts once. What a vector cost
is noted with it. A useless vector costs one row, and so does a text that the model cannot bear; a model that does not
answer anybody stops the batch, and what it had answered is remembered.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from headwater import faults
from headwater.domain.chunks import chunks_of
from headwater.domain.groups import grouped
from headwater.domain.steps import EMBED
from headwater.domain.tables import EMBEDDINGS
from headwater.errors import DataFault, Unavailable
from headwater.flow.embed.asking import Answer, Embedder
from headwater.flow.embed.model_process import ModelProcess
from headwater.flow.models.answers import checked_amount, checked_embedded, loading
from headwater.flow.models.port import Embedded, Model, ModelCard
from headwater.flow.models.registry import is_harmless, load_model
from headwater.flow.models.spending import OVER_BUDGET, Purse
from headwater.flow.spent import purse_of_attempt
from headwater.settings import Settings
from headwater.storage.memo.memo import Memo, open_memo

STEP: Final = EMBED.name
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
_ABOUT: Final = ("object_id", "customer", "modality", "event_id", "occurred_at", "pointer", "meta", "thread")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EmbedWork:
    """All that travels to the workers. `reload` names a wish to load the model anew, once a name.

    `purse` is what a worker may spend; with one, texts are taken in their order, up to the first that it cannot pay.
    """

    name: str
    settings: Settings
    now: datetime
    reload: str = ""
    purse: float | None = None


def embed_batches(work: EmbedWork) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            embedder = _loaded(work)
        except Unavailable as error:
            yield from _down(error, batches)
            return
        memo = None if embedder.model.card.instant else _memo(work.settings)
        purse = purse_of_attempt(work.purse)
        task = _EmbedTask(embedder, memo, work.now, None if purse is None else Purse(purse))
        for batch in batches:
            for rows in task.rows_of(batch):
                yield pa.RecordBatch.from_pylist(rows, schema=OUTPUT)

    return run


def _down(error: Unavailable, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row for all texts: the driver lets them wait, and knows whom for."""
    for _ in batches:  # Spark keeps a worker that has read what it was given
        pass
    yield pa.RecordBatch.from_pylist([{"reason": "MODEL_DOWN", "detail": str(error)}], schema=OUTPUT)


@dataclass(slots=True)
class _EmbedTask:
    """What one task of Spark's has at hand, in its worker."""

    embedder: Embedder
    memo: Memo | None
    now: datetime
    purse: Purse | None
    _unpaid: Row | None = None  # the first that could not be paid, as a row

    def rows_of(self, batch: pa.RecordBatch) -> Iterator[list[Row]]:
        if self.purse is not None:
            chunked = (list(_chunk_rows(text)) for text in batch.to_pylist())
            for texts in grouped(chunked, len, most_bytes=self.embedder.model.card.batch_items):
                yield from self._affordable([chunk for chunks in texts for chunk in chunks])
            return
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            texts = batch.slice(start, _ROWS_AT_ONCE).to_pylist()
            yield self._embedded([chunk for text in texts for chunk in _chunk_rows(text)])

    def _affordable(self, chunks: list[Row]) -> Iterator[list[Row]]:
        """About a call's worth. Where it cannot be paid as a whole, chunk by chunk, as far as it goes."""
        made = self._embedded(chunks) if self._unpaid is None else [self._set_aside(chunk) for chunk in chunks]
        yield [row for row in made if row.get("reason") != OVER_BUDGET]
        for chunk, row in zip(chunks, made, strict=True):
            if row.get("reason") != OVER_BUDGET:
                continue
            if self._unpaid is not None:
                yield [row]
                continue
            (alone,) = self._embedded([chunk])
            alone["cost"] += row["cost"]  # of a call for all of them that was answered with something useless
            self._unpaid = alone if alone.get("reason") == OVER_BUDGET else None
            yield [alone]

    def _set_aside(self, chunk: Row) -> Row:
        assert self._unpaid is not None
        made = {name: self._unpaid[name] for name in (*_MADE, "reason", "detail")}
        return {**chunk, **made, "chunk_id": _chunk_id(chunk, made["fingerprint"]), "cost": 0.0, "remembered": False}

    def _embedded(self, chunks: list[Row]) -> list[Row]:
        card = self.embedder.model.card
        answers = _answers([chunk["text"] for chunk in chunks], self.embedder, self.memo, self.purse)
        made = dict(zip(_MADE, (STEP, card.label, card.fingerprint, self.now), strict=True))
        asked: set[str] = set()
        rows = []
        for chunk in chunks:
            answer, again = answers[chunk["text"]], chunk["text"] in asked
            asked.add(chunk["text"])
            row = {**chunk, **made, "chunk_id": _chunk_id(chunk, card.fingerprint), **answer}
            row["remembered"] = answer.get("remembered", False) or again
            if again and "reason" in answer:
                row["cost"] = 0.0  # it was asked for once
            rows.append(row)
        return rows


_MADE: Final = ("step", "model", "fingerprint", "derived_at")
_models: dict[tuple[str, str], tuple[str, Embedder]] = {}
_memos: dict[str, Memo] = {}


def _loaded(work: EmbedWork) -> Embedder:
    """Once per Python worker, while its options are the same."""
    key = (work.name, repr(sorted(work.settings.models.get(work.name, {}).items())))
    if key not in _models or work.reload not in {"", _models[key][0]}:
        if key in _models:
            _models.pop(key)[1].close()
        model = _kept_apart(work)
        with loading(work.name):
            model.load()
        _models[key] = (work.reload, Embedder(model))
    embedder = _models[key][1]
    embedder.rest()
    return embedder


def _kept_apart(work: EmbedWork) -> Model:
    """In a child of its own, unless it is known to do no harm."""
    if is_harmless(work.name, work.settings.models):
        return load_model(work.name, work.settings.models)
    return ModelProcess(work.name, work.settings)


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


def _answers(texts: Sequence[str], embedder: Embedder, memo: Memo | None, purse: Purse | None) -> dict[str, Answer]:
    card = embedder.model.card
    distinct = list(dict.fromkeys(texts))
    if memo is None:
        return embedder.ask_all(distinct, lambda answers: None, purse)
    shelf = memo.shelf(STEP, card.fingerprint)
    held = shelf.find([_checksum(text) for text in distinct])
    known = {text: _judged(held[_checksum(text)], card) for text in distinct if _checksum(text) in held}
    answers = {text: answer for text, answer in known.items() if answer is not None}
    kept: dict[str, dict[str, Any]] = {}

    def remember(fresh: Mapping[str, Answer]) -> None:
        kept.update({_checksum(text): _kept(answer) for text, answer in fresh.items()})
        if card.price > 0 and kept:
            faults.point("embed.called")
            shelf.put(kept, paid=True)
            faults.point("embed.memoised")
            kept.clear()

    try:
        answers |= embedder.ask_all([text for text in distinct if text not in answers], remember, purse)
    finally:
        if kept:
            shelf.put(kept, paid=card.price > 0)
    return answers


def _kept(answer: Answer) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "remembered"}


def _judged(held: Any, card: ModelCard) -> Answer | None:
    """None where what was remembered is no good: then it is asked for anew."""
    try:
        counts = held.get("tokens", 0), held.get("attempts", 1)
        embedded = checked_embedded(Embedded(held["vector"], *counts), card.dimension)
        amounts = {name: checked_amount(held.get(name, 0.0), name) for name in ("model_seconds", "cost")}
    except (DataFault, ValueError, TypeError, KeyError, AttributeError):
        return None
    return {
        "vector": embedded.vector,
        "tokens": embedded.tokens,
        "attempts": embedded.attempts,
        **amounts,
        "remembered": True,
    }


@lru_cache(maxsize=4_096)
def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _chunk_id(row: Mapping[str, Any], fingerprint: str) -> str:
    """Short, and the same for the same chunk in every run."""
    parts = (row["object_id"], row["source_table"], row["source_fingerprint"], str(row["chunk"]), fingerprint)
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
