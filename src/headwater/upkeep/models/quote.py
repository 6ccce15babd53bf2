"""A quote: what a replay will read, call and cost, told before anything is done, from table metadata and rows alone.

Where a model is paid by the second of sound, by the image or by the call, `cost` is the most that it can come to, as
far as the objects' own facts go: a video may have fewer frames that differ, both channels of a call the same sound. By
the token it is estimated, from what was billed before, or from the length of texts; a budget does not rely on that: its
calls are counted as they are made.
Time is told by the pace of a model that has done the step before, and says whose pace that was.
"""

import math
from array import array
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from headwater.domain.modality import Modality, modalities_with
from headwater.domain.model_book import KnownModel, ModelBook
from headwater.domain.shown import ShownAsTable
from headwater.domain.steps import EMBED, PROBE, STEPS
from headwater.domain.tables import EMBEDDINGS, EVENTS, TEXT_TABLES, Table
from headwater.flow.derive.audio import SIDES
from headwater.flow.derive.video import FRAME_SECONDS
from headwater.flow.models.documents import SCANS_MAX
from headwater.flow.models.port import ModelCard
from headwater.settings import Settings
from headwater.storage.memo.memo import Memo
from headwater.storage.query.reader import open_answer, run_sql
from headwater.storage.tables.catalog import Tables
from headwater.storage.tables.expired_scan import plan_again
from headwater.storage.tables.read_progress import read_progress
from headwater.storage.tables.row_filter import literal

# Letters of English in a token; of a letter that takes several bytes, each may be one.
_LETTERS_PER_TOKEN: Final = 4
_TOKENS_PER_PICTURE: Final = 1_000  # prompt and picture together, where nobody has told yet
_CUT_SECONDS: Final = 10  # long sound is cut where it is quietest, up to so much before a piece is full


@dataclass(frozen=True, slots=True)
class Quote(ShownAsTable):
    """`remembered` objects have their answer in the memo already: they cost nothing."""

    step: str
    model: str
    fingerprint: str
    objects: int
    bytes: int
    reads: dict[str, int]
    remembered: int
    calls: int
    model_seconds: float | None
    pace_of: str | None
    cost: float
    rows: int
    vectors: int
    seconds: float | None
    # For each object in the order of its event: where it stands, and what has to be paid up to it at the most. Where
    # nobody can tell, that is nothing: then the calls themselves say when the money is at its end.
    places: Sequence[int] = field(default=(), repr=False)
    bill: Sequence[float] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        shown = replace(self, places=(), bill=())  # else each would be copied
        return {name: value for name, value in asdict(shown).items() if name not in {"places", "bill"}}

    def affordable(self, position: int, money: float) -> int | None:
        """The first event that cannot be paid any more; None where not even the next one can."""
        start = bisect_right(self.places, position - 1)
        before = self.bill[start - 1] if start else 0.0
        end = bisect_right(self.bill, before + money + 1e-9)
        if end >= len(self.places):
            return 1 << 62
        return self.places[end] if end > start else None


@dataclass(frozen=True, slots=True)
class Quoting:
    """What a quote is made from. `workers` is how many models are at work at a time."""

    reader: Tables
    settings: Settings
    book: ModelBook
    memo: Memo
    workers: int

    def quote(self, known: KnownModel, card: ModelCard) -> Quote:
        return self._embedder(known, card) if known.step == EMBED.name else self._derivation(known, card)

    def _derivation(self, known: KnownModel, card: ModelCard) -> Quote:
        step = STEPS[known.step]
        table, modalities = step.table, modalities_with(step)
        progress, reached = read_progress(self.settings, table), read_progress(self.settings, step.frontier)
        begin, end = progress.seq_of(known.position_in(EVENTS.name)), reached.seq_of(EVENTS.name)
        if end <= begin:
            return _nothing(known, card)
        query = _OBJECTS.format(
            begin=begin,
            end=end,
            modalities=_list(modalities),
            table=table.short_name,
            print=known.fingerprint,
            whole=PROBE.name,
            codec=f"AND coalesce(m.codec, '{step.codec}') = '{step.codec}'" if step.codec else "",
        )
        left = plan_again(lambda: self._counted(known, card, query, self._tokens_each(known.step, table)))
        seconds, whose = self._pace(known, table, left)
        return Quote(
            step=known.step,
            model=card.label,
            fingerprint=card.fingerprint,
            objects=left.objects,
            bytes=left.bytes,
            reads=left.reads,
            remembered=left.objects - left.asked,
            calls=left.calls,
            model_seconds=seconds,
            pace_of=whose,
            cost=left.cost,
            rows=left.objects,
            vectors=left.objects if step.produces == "vector" else round(left.objects * self._vectors_each(known.step)),
            seconds=seconds / self.workers if seconds is not None else None,
            places=left.places,
            bill=left.bill,
        )

    def _counted(self, known: KnownModel, card: ModelCard, query: str, tokens_each: float) -> "_Left":
        """The objects that are left, as they come from the query. Of each no more is kept than what it adds to sums
        and, where a budget may be held to it, its place and the bill so far."""
        left, shelf = _Left(), self.memo.shelf(known.step, known.fingerprint)
        frames = self.settings.whole("limits.frames")
        billed = card.price > 0 and card.price_unit != "1k_tokens"
        with open_answer(self.reader, query) as answer:
            for rows in answer.rows:
                held = set() if card.instant else shelf.known({row["checksum"] for row in rows})
                for row in rows:
                    cost = 0.0
                    if row["checksum"] not in held:
                        cost = _cost(card, row, tokens_each, frames)
                        left.ask(row, cost)
                    left.objects += 1
                    if billed:
                        left.places.append(row["seq"])
                        left.bill.append(left.cost)
        return left

    def _embedder(self, known: KnownModel, card: ModelCard) -> Quote:
        progress = read_progress(self.settings, EMBEDDINGS)
        texts, tokens = 0, 0.0
        for table in TEXT_TABLES:
            begin, end = progress.seq_of(known.position_in(table.name)), progress.seq_of(table.name)
            if end > begin:
                (row,) = self._rows(_TEXTS.format(table=table.short_name, begin=begin, end=end))
                texts, tokens = texts + row["texts"], tokens + _estimated_tokens(row["letters"], row["bytes"])
        if not texts:
            return _nothing(known, card)
        active = self.book.active(EMBED.name)
        (chunks,) = self._rows(_CHUNKS.format(print=active.fingerprint if active else ""))
        share = texts / chunks["texts"] if chunks["texts"] else 0.0
        vectors = round(chunks["vectors"] * share) or texts
        asked = 1.0 - self._remembered_share(known, active)
        calls = -(-round(vectors * asked) // card.batch_items)
        seconds = vectors * asked * chunks["seconds_each"] if chunks["vectors"] else None
        return Quote(
            step=known.step,
            model=card.label,
            fingerprint=card.fingerprint,
            objects=texts,
            bytes=0,
            reads={},
            remembered=vectors - round(vectors * asked),
            calls=calls,
            model_seconds=seconds,
            pace_of=active.label if active and seconds is not None else None,
            cost=card.cost(tokens=round(tokens * asked), calls=calls),
            rows=vectors,
            vectors=vectors,
            seconds=seconds / self.workers if seconds is not None else None,
        )

    def _remembered_share(self, known: KnownModel, active: KnownModel | None) -> float:
        """How much of what the active embedder was given has its answer in the memo."""
        if active is None or not any(size.fingerprint == known.fingerprint for size in self.memo.sizes()):
            return 0.0
        shelf = self.memo.shelf(known.step, known.fingerprint)

        def share() -> float:
            texts = remembered = 0
            with open_answer(self.reader, _TEXT_KEYS.format(print=active.fingerprint)) as answer:
                for rows in answer.rows:
                    texts += len(rows)
                    remembered += len(shelf.known({row["key"] for row in rows}))
            return remembered / max(1, texts)

        return plan_again(share)

    def _pace(self, known: KnownModel, table: Table, left: "_Left") -> tuple[float | None, str | None]:
        """By the model's own pace if it has done some, else by the active one's."""
        for model in (known, self.book.active(known.step)):
            if model is None:
                continue
            (row,) = self._rows(_PACE.format(table=table.short_name, print=model.fingerprint))
            if row["objects"]:
                if row["media_seconds"] and STEPS[known.step].accepts == "speech":
                    rate = row["model_seconds"] / row["media_seconds"]
                    return rate * left.media_seconds, model.label
                return row["model_seconds"] / row["objects"] * left.asked, model.label
        return None, None

    def _tokens_each(self, step: str, table: Table) -> float:
        (row,) = self._rows(_TOKENS.format(table=table.short_name, step=step))
        return float(row["tokens"] or _TOKENS_PER_PICTURE)

    def _vectors_each(self, step: str) -> float:
        """Chunks of an object as the active model makes them, times the embedders that are kept."""
        active = self.book.active(step)
        (row,) = self._rows(_CHUNKS_OF.format(print=active.fingerprint if active else ""))
        chunks = row["vectors"] / row["objects"] if row["objects"] else 1.0
        return float(chunks * len(self.book.kept(EMBED.name)))

    def _rows(self, query: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = run_sql(self.reader, query)["rows"]
        return rows


@dataclass(slots=True)
class _Left:
    """Sums over the objects that a model has yet to do; `asked` are those that the memo does not know."""

    objects: int = 0
    asked: int = 0
    calls: int = 0
    bytes: int = 0
    cost: float = 0.0
    media_seconds: float = 0.0
    reads: dict[str, int] = field(default_factory=dict)
    places: "array[int]" = field(default_factory=lambda: array("q"))
    bill: "array[float]" = field(default_factory=lambda: array("d"))

    def ask(self, row: dict[str, Any], cost: float) -> None:
        self.asked += 1
        self.calls += row["is_first"]  # equal contents are asked for once
        self.bytes += row["size"]
        self.cost += cost
        self.media_seconds += row["media_seconds"]
        self.reads[row["tier"]] = self.reads.get(row["tier"], 0) + 1


def _nothing(known: KnownModel, card: ModelCard) -> Quote:
    """It has seen all there is: told by positions alone, without opening a table."""
    return Quote(known.step, card.label, card.fingerprint, 0, 0, {}, 0, 0, 0.0, None, 0.0, 0, 0, 0.0)


def _cost(card: ModelCard, row: dict[str, Any], tokens_each: float, frames_max: int) -> float:
    sides = SIDES if card.accepts == "speech" and row["modality"] == Modality.AUDIO and row["channels"] == SIDES else 1
    seconds = row["media_seconds"]
    images = min(max(1, row["pages"] or 1), SCANS_MAX)
    if row["modality"] == Modality.VIDEO:
        images = min(frames_max, int(seconds // FRAME_SECONDS) + 2)
    calls = images
    if card.accepts == "speech":
        piece = float(card.parameters.get("piece_seconds") or seconds + _CUT_SECONDS + 1)
        calls = sides * max(1, math.ceil(seconds / max(1.0, piece - _CUT_SECONDS)))
    return card.cost(seconds=seconds * sides, images=images, tokens=round(tokens_each * images), calls=calls)


def _estimated_tokens(letters: int, size: int) -> float:
    """By how many letters take more than one byte: such a letter has about one and a half as many as it has more."""
    more = size - letters
    return max(0.0, letters - more / 2) / _LETTERS_PER_TOKEN + more * 1.5


def _list(texts: Collection[str]) -> str:
    return ", ".join(literal(text) for text in texts)


_OBJECTS: Final = """
    SELECT e.seq, e.object_id, e.modality, e.pointer.size AS size, e.pointer.checksum AS checksum,
        coalesce(m.tier, 'standard') AS tier, coalesce(m.duration_ms, 0) / 1000.0 AS media_seconds, m.pages, m.channels,
        row_number() OVER (PARTITION BY e.pointer.checksum ORDER BY e.seq) = 1 AS is_first
    FROM bronze.events e LEFT JOIN all_models.metadata m ON m.object_id = e.object_id
    WHERE e.seq >= {begin} AND e.seq < {end} AND e.first_of_object AND e.modality IN ({modalities}) {codec}
        AND NOT EXISTS (
            SELECT 1 FROM quarantine q
            WHERE q.object_id = e.object_id AND q.event_id = e.event_id AND q.step = '{whole}')
        AND NOT EXISTS (
            SELECT 1 FROM all_models.{table} t WHERE t.object_id = e.object_id AND t.fingerprint = '{print}')
    ORDER BY e.seq"""
# As `embed.worker` knows a text in the memo.
_TEXT_KEYS: Final = "SELECT DISTINCT sha256(text) AS key FROM all_models.embeddings WHERE fingerprint = '{print}'"
_PACE: Final = """
    SELECT count(*) AS objects, coalesce(sum(t.model_seconds), 0) AS model_seconds,
        coalesce(sum(m.duration_ms), 0) / 1000.0 AS media_seconds
    FROM all_models.{table} t LEFT JOIN all_models.metadata m ON m.object_id = t.object_id
    WHERE t.fingerprint = '{print}'"""
_TOKENS: Final = "SELECT avg(tokens) AS tokens FROM all_models.{table} WHERE step = '{step}' AND tokens > 0"
_CHUNKS_OF: Final = """
    SELECT count(*) AS vectors, count(DISTINCT object_id) AS objects
    FROM embeddings WHERE source_fingerprint = '{print}'"""
_TEXTS: Final = """
    SELECT count(*) AS texts, coalesce(sum(length(text)), 0)::BIGINT AS letters,
        coalesce(sum(octet_length(encode(text))), 0)::BIGINT AS bytes
    FROM all_models.{table} WHERE seq >= {begin} AND seq < {end} AND length(trim(text)) > 0"""
_CHUNKS: Final = """
    SELECT count(*) AS vectors, count(DISTINCT (object_id, source_fingerprint)) AS texts,
        coalesce(avg(model_seconds), 0)::DOUBLE AS seconds_each
    FROM all_models.embeddings WHERE fingerprint = '{print}'"""
