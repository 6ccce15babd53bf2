"""The truth that `make bench-quality` measures by is what docs/models.md says it is, and its measures are right."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from quality import pictures, speech
from quality import search as search_quality
from quality.judged import NONSENSE, ndcg, read_questions, read_texts, recall
from quality.sentences import ENGLISH

# What a question and its answer may share and still have no word of weight in common.
LIGHT = set(
    re.findall(
        r"\w+",
        "a an the of in on at to for by with from is was are be been it i my me you your we our that this and or not "
        "no do does did what where when how can could as up off",
    )
)


def weighty(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower())) - LIGHT


def test_there_are_texts_and_questions_enough_and_every_answer_exists() -> None:
    texts, questions = read_texts(), read_questions()
    assert len(texts) >= 300 and len(set(texts.values())) == len(texts)
    assert all(one.answers and one.answers <= set(texts) for one in questions)
    kinds = Counter(one.kind for one in questions if one.kind not in {"cjk", "unseen"})
    assert sum(kinds.values()) >= 80
    assert kinds["meaning"] >= sum(kinds.values()) / 2 and kinds["code"] >= sum(kinds.values()) / 4


def test_questions_of_meaning_share_no_word_of_weight_with_their_answers() -> None:
    texts = read_texts()
    for one in read_questions():
        if one.kind in {"meaning", "unseen"}:
            shared = {name: weighty(one.text) & weighty(texts[name]) for name in one.answers}
            assert not any(shared.values()), (one.text, shared)


def test_a_code_stands_in_its_answer_and_nowhere_else() -> None:
    texts = read_texts()
    for one in read_questions():
        if one.kind == "code":
            code = one.text.split()[-1].lower()
            assert {name for name, text in texts.items() if code in text.lower()} == one.answers, one.text


def test_nonsense_is_nowhere() -> None:
    everything = " ".join(read_texts().values()).lower()
    assert not [word for word in NONSENSE if word[:5] in everything]


@pytest.mark.parametrize(
    ("found", "gain", "share"),
    [("ab", 1.0, 1.0), ("xaxb", 0.65, 1.0), ("a", 0.61, 0.5), ("xyz", 0.0, 0.0), ("x" * 10 + "ab", 0.0, 0.0)],
)
def test_answers_further_down_count_less_and_past_the_tenth_not_at_all(found: str, gain: float, share: float) -> None:
    answers = frozenset("ab")
    assert ndcg(list(found), answers) == pytest.approx(gain, abs=0.01)
    assert recall(list(found), answers) == share


def test_a_sample_of_speech_is_heard_as_much_better_as_the_whole_is_to_be() -> None:
    clean = list(speech.spoken(ENGLISH[2:4]))
    sets = {
        speech.CLEAN: clean,
        speech.TELEPHONE: [speech.Clip(one.said, speech.telephone(one.samples)) for one in clean[::2]],
    }
    new, old = speech.loaded_models().values()
    for kind, clips in sets.items():
        ours, theirs = speech.hear(new, clips), speech.hear(old, clips)
        assert ours.refused == 0
        assert ours.error <= theirs.error * speech.GOALS[kind], (kind, ours, theirs)


@pytest.mark.parametrize("embedder", ["static", "minilm", "bge"])
def test_search_by_words_and_meaning_is_as_good_as_the_better_half_on_every_class(
    embedder: str, tmp_path: Path
) -> None:
    questions = read_questions()
    found = search_quality.find_by(search_quality.ways_to_find(tmp_path / "lake", embedder, read_texts()), questions)
    for kind in dict.fromkeys(one.kind for one in questions):
        gained = search_quality.mean_by_way(kind, questions, found, ndcg)
        better = max(gained["meaning"], gained["words"])
        assert gained["fused"] >= better - search_quality.ALIKE, (kind, gained)
    assert search_quality.mean_by_way("code", questions, found, recall)["fused"] == 1.0
    if embedder == "bge":
        for kind in ("meaning", "unseen"):
            assert search_quality.mean_by_way(kind, questions, found, recall)["fused"] >= 0.9


def test_a_sample_of_screens_is_read_as_much_better_as_the_whole_is_to_be() -> None:
    some = list(pictures.screens())[3::16]
    new, old = (pictures.read_by(name, some) for name in pictures.MODELS)
    assert new.error(pictures.ALL) <= old.error(pictures.ALL) * pictures.GOAL
