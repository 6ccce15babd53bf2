"""Compare: two models of a step side by side, from what each has made: coverage, disagreement, cost, and a sample.

Reads   the step's table, silver.embeddings, the index
Nobody says which one is right. Disagreement tells how much would change; the sample is there to be looked at.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.domain.modality import modalities_with
from headwater.domain.model_book import KnownModel
from headwater.domain.steps import CHOICES, EMBED, STEPS
from headwater.domain.words import edits
from headwater.flow.models.answers import ask_vector
from headwater.flow.models.port import Model
from headwater.storage.index.vector_index import VectorIndex
from headwater.storage.query.reader import run_sql
from headwater.storage.tables.catalog import Tables
from headwater.upkeep.models.named import load_known, settled_book
from headwater.upkeep.parts import Parts

PAIRS_MAX: Final = 500
SAMPLE: Final = 5
QUERIES: Final = 50
NEAREST: Final = 10
_SHOWN_LETTERS: Final = 240
# Capitals and full stops are no disagreement: some models write them and some do not.
_WORDS: Final = re.compile(r"[\w']+")


@dataclass(frozen=True, slots=True)
class Comparing:
    """`load` gives a loaded model: an embedder has to be asked."""

    reader: Tables
    index: VectorIndex
    load: Callable[[KnownModel], Model]

    def compare(self, one: KnownModel, other: KnownModel) -> dict[str, Any]:
        """`{"step", "models": […], "disagreement": {…}, "sample": […]}`"""
        both = (one, other)
        facts = [self._facts(known) for known in both]
        made = self._vectors(one, other) if CHOICES[one.step].produces == "vector" else self._texts(one, other)
        return {"step": one.step, "models": facts, **made}

    def _facts(self, known: KnownModel) -> dict[str, Any]:
        table = CHOICES[known.step].table.short_name
        (row,) = self._rows(_FACTS.format(table=table, print=known.fingerprint))
        return {
            "model": known.label,
            "name": known.name,
            "fingerprint": known.fingerprint,
            "state": str(known.state),
            "objects": self._objects(known),
            **row,
        }

    def _objects(self, known: KnownModel) -> int:
        """How many there are to be done: what any model has done, or given up."""
        if known.step == EMBED.name:
            return int(self._rows(_TEXT_OBJECTS)[0]["objects"])
        modalities = ", ".join(f"'{name}'" for name in modalities_with(STEPS[known.step]))
        return int(self._rows(_OBJECTS.format(modalities=modalities))[0]["objects"])

    def _texts(self, one: KnownModel, other: KnownModel) -> dict[str, Any]:
        table = STEPS[one.step].table.short_name
        query = _PAIRS.format(table=table, one=one.fingerprint, other=other.fingerprint, limit=PAIRS_MAX)
        pairs = [_judged(row) for row in self._rows(query)]
        words, wrong = sum(pair["words"] for pair in pairs), sum(pair["edits"] for pair in pairs)
        worst = sorted(pairs, key=lambda pair: (-pair["word_error"], pair["object_id"]))
        return {
            "disagreement": {
                "pairs": len(pairs),
                "word_error": round(wrong / words, 4) if words else None,
                "equal": sum(pair["edits"] == 0 for pair in pairs),
            },
            "sample": [_shown(pair) for pair in worst[:SAMPLE]],
        }

    def _vectors(self, one: KnownModel, other: KnownModel) -> dict[str, Any]:
        queries = [row["text"] for row in self._rows(_QUERIES.format(limit=QUERIES))]
        mine, theirs = (self._nearest(known, queries) for known in (one, other))
        shares = [len(set(a) & set(b)) / max(1, len(set(a))) for a, b in zip(mine, theirs, strict=True)]
        order = sorted(range(len(queries)), key=lambda at: (shares[at], queries[at]))[:SAMPLE]
        return {
            "disagreement": {
                "queries": len(queries),
                "overlap_at_10": round(sum(shares) / len(shares), 4) if shares else None,
            },
            "sample": [
                {
                    "query": queries[at][:_SHOWN_LETTERS],
                    "overlap": round(shares[at], 2),
                    "one": [text for _, text in mine[at]][:3],
                    "other": [text for _, text in theirs[at]][:3],
                }
                for at in order
            ],
        }

    def _nearest(self, known: KnownModel, queries: Sequence[str]) -> list[list[tuple[str, str]]]:
        if not queries:
            return []
        model = self.load(known)
        found = []
        for query in queries:
            entries = self.index.search(known.fingerprint, ask_vector(model, query), NEAREST)
            found.append([(entry.object_id, entry.text[:_SHOWN_LETTERS]) for entry in entries])
        return found

    def _rows(self, query: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = run_sql(self.reader, query)["rows"]
        return rows


def compare_models(parts: Parts, step: str, one: str, other: str) -> dict[str, Any]:
    """By their names; starts no JVM."""
    book = settled_book(parts)
    comparing = Comparing(parts.reader, parts.index, lambda known: load_known(parts, known))
    return comparing.compare(book.find(step, one), book.find(step, other))


def _judged(row: dict[str, Any]) -> dict[str, Any]:
    words, others = (_WORDS.findall((row[name] or "").lower()) for name in ("one", "other"))
    changed = edits(words, others)
    return {**row, "words": len(words), "edits": changed, "word_error": changed / max(1, len(words))}


def _shown(pair: dict[str, Any]) -> dict[str, Any]:
    return {
        "object_id": pair["object_id"],
        "word_error": round(pair["word_error"], 4),
        "one": (pair["one"] or "")[:_SHOWN_LETTERS],
        "other": (pair["other"] or "")[:_SHOWN_LETTERS],
    }


_FACTS: Final = """
    SELECT count(*) AS rows, count(DISTINCT object_id) AS covered,
        coalesce(sum(model_seconds), 0)::DOUBLE AS model_seconds, coalesce(sum(tokens), 0)::BIGINT AS tokens,
        coalesce(sum(cost), 0)::DOUBLE AS cost, coalesce(sum(attempts), 0)::BIGINT AS attempts
    FROM all_models.{table} WHERE fingerprint = '{print}'"""
_OBJECTS: Final = "SELECT count(*) AS objects FROM bronze.events WHERE first_of_object AND modality IN ({modalities})"
_TEXT_OBJECTS: Final = "SELECT count(DISTINCT object_id) AS objects FROM all_models.embeddings WHERE text <> ''"
# In an order that is the same each time and has nothing to do with the texts.
_PAIRS: Final = """
    SELECT a.object_id, a.text AS one, b.text AS other
    FROM all_models.{table} a JOIN all_models.{table} b ON a.object_id = b.object_id AND a.step = b.step
    WHERE a.fingerprint = '{one}' AND b.fingerprint = '{other}'
    ORDER BY md5(a.object_id) LIMIT {limit}"""
_QUERIES: Final = """
    SELECT text FROM (SELECT DISTINCT text FROM all_models.embeddings WHERE text <> '')
    ORDER BY md5(text) LIMIT {limit}"""
