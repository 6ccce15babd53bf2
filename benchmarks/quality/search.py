"""nDCG@10 and recall@10 of search: by meaning alone, by words alone and fused, for each built-in embedder.

The index and the search are Headwater's own, over 309 texts. `nothing` asks for words that are nowhere: there, what is
found is noise.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa

import headwater
from headwater import settings as settings_module
from headwater.domain.tables import EMBEDDINGS
from headwater.domain.terms import asked_terms
from headwater.flow.models.port import Model
from headwater.flow.models.registry import load_model
from headwater.flow.search import search
from headwater.storage.index.vector_index import VectorIndex, open_index
from quality import table
from quality.judged import AT, NONSENSE, Question, ndcg, read_questions, read_texts, recall

MODELS: Final = ("static", "minilm", "bge", "lexical")
NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
POINTER: Final = {"offset": 0, "size": 1, "content_type": "text/plain", "checksum": "0" * 64}

# Of 48 questions: one whose only answer falls from the first place to the second moves them by 0.008.
ALIKE: Final = 0.005

Find = Callable[[str], list[tuple[str, float]]]
Found = dict[str, dict[str, list[tuple[str, float]]]]  # by way and question: names and scores, best first
Measure = Callable[[Sequence[str], frozenset[str]], float]


def report(shorter: bool) -> None:
    questions, texts = read_questions(), read_texts()
    kinds = list(dict.fromkeys(question.kind for question in questions))
    for name in MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            ways = ways_to_find(Path(scratch) / "lake", name, texts)
            found = find_by(ways, questions)
            lines = [_line(kind, [one for one in questions if one.kind == kind], found) for kind in kinds]
            judged = [one for one in questions if one.kind != "cjk"]
            table.show(
                f"Search with {name}, {len(texts)} texts: nDCG@{AT} and recall@{AT}",
                ("questions", "", *(f"{what} {way}" for what in ("nDCG", "recall") for way in ways)),
                [*lines, _line("all but cjk", judged, found)],
            )
            _report_codes([one for one in questions if one.kind == "code"], found)
            _report_noise(ways["fused"])
            _report_goals(questions, found)


def find_by(ways: dict[str, Find], questions: Sequence[Question]) -> Found:
    return {way: {one.text: find(one.text) for one in questions} for way, find in ways.items()}


def mean_by_way(kind: str, questions: Sequence[Question], found: Found, measure: Measure) -> dict[str, float]:
    asked = [one for one in questions if one.kind == kind]
    return {
        way: statistics.mean(measure([name for name, _ in answers[one.text]], one.answers) for one in asked)
        for way, answers in found.items()
    }


def _report_goals(questions: Sequence[Question], found: Found) -> None:
    for kind in dict.fromkeys(question.kind for question in questions):
        gained = mean_by_way(kind, questions, found, ndcg)
        better = max(gained["meaning"], gained["words"])
        _goal(f"fused nDCG@{AT} of {kind}, as good as the better half within {ALIKE}", gained["fused"], better - ALIKE)
    for kind, least in (("meaning", 0.9), ("unseen", 0.9), ("code", 1.0)):
        _goal(f"fused recall@{AT} of {kind}", mean_by_way(kind, questions, found, recall)["fused"], least)


def _goal(what: str, figure: float, least: float) -> None:
    print(f"goal: {what}: {figure:.3f}, at least {least:.3f}: {'reached' if figure >= least else 'NOT reached'}")


def _report_codes(questions: Sequence[Question], found: Found) -> None:
    first = {
        way: sum(bool(answers[one.text]) and answers[one.text][0][0] in one.answers for one in questions)
        for way, answers in found.items()
    }
    print(
        "\nexact codes and names that come first: "
        + ", ".join(f"{way} {n}/{len(questions)}" for way, n in first.items())
    )


def _report_noise(find: Find) -> None:
    answers = [find(word) for word in NONSENSE]
    best = [hits[0][1] for hits in answers if hits]
    counts = [len(hits) for hits in answers]
    print(
        f"words that are nowhere: {len(best)}/{len(NONSENSE)} find something, {statistics.mean(counts):.1f} hits each; "
        f"best score {max(best, default=0):.3f}, median {statistics.median(best) if best else 0:.3f}"
    )


def _line(kind: str, questions: Sequence[Question], found: Found) -> tuple[object, ...]:
    names = {way: [([name for name, _ in answers[one.text]], one.answers) for one in questions]
             for way, answers in found.items()}  # fmt: skip
    measured = [statistics.mean(measure(*each) for each in names[way]) for measure in (ndcg, recall) for way in names]
    return (kind, len(questions), *measured)


def ways_to_find(lake: Path, name: str, texts: dict[str, str]) -> dict[str, Find]:
    headwater.init(lake).close()
    model = load_model(name)
    model.load()
    index = open_index(settings_module.resolve(lake, {}, {}, {}))
    started = time.process_time()
    rows = _rows(model, texts)
    print(f"\n{name}: {len(texts)} texts embedded in {time.process_time() - started:.3f} CPU s")
    index.upsert(rows)
    index.set_position(len(texts))
    index.optimise()
    return {
        "meaning": lambda asked: _nearest(index, model, asked),
        "words": lambda asked: [
            (e.chunk_id, e.score) for e in index.search(model.card.fingerprint, asked_terms(asked), AT)
        ],
        "fused": lambda asked: [
            (hit.entry.chunk_id, hit.score) for hit in search(index, model, asked, embedded=len(texts)).hits
        ],
    }


def _nearest(index: VectorIndex, model: Model, asked: str) -> list[tuple[str, float]]:
    found = index.search(model.card.fingerprint, model.run([asked])[0], AT)
    return [(entry.chunk_id, entry.score) for entry in found]


def _rows(model: Model, texts: dict[str, str]) -> pa.Table:
    count, card = len(texts), model.card
    columns = {
        "seq": range(count), "object_id": [f"chat/acme/{name}" for name in texts], "customer": ["acme"] * count,
        "modality": ["chat"] * count, "step": ["embed"] * count, "model": [card.label] * count,
        "fingerprint": [card.fingerprint] * count, "event_id": list(texts), "occurred_at": [NOON] * count,
        "derived_at": [NOON] * count, "pointer": [{**POINTER, "path": name} for name in texts],
        "chunk_id": list(texts), "chunk": [0] * count, "source_table": ["silver.messages"] * count,
        "source_fingerprint": ["inline"] * count, "source_model": ["inline"] * count, "text": list(texts.values()),
        "locator": [None] * count, "vector": model.run(list(texts.values())),
    }  # fmt: skip
    given = {name: columns.get(name, [None] * count) for name in EMBEDDINGS.schema.names}
    return pa.table(given, schema=EMBEDDINGS.schema)
