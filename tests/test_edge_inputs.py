"""Inputs at the edge of what built-in models know: a row without invented text, or a reason; never a crash."""

from collections.abc import Callable, Iterator

import media
import numpy as np
import pytest
from PIL import Image, ImageDraw
from test_decoding import Lab, faults

from headwater.demo.drawing import draw_screen, read_wav, wav_bytes
from headwater.demo.media import RECORDINGS, recordings
from headwater.domain.locator import Locator, Segment
from headwater.domain.words import character_accuracy, plain_words, word_error_rate
from headwater.flow.derive.strips import SIDE_MAX, STRIPS_MAX, largest, read_in_strips
from headwater.flow.models.port import SAMPLE_RATE, Picture, Said, Samples
from headwater.flow.models.registry import load_model

CALL = read_wav(RECORDINGS / "refund-call.wav")
SAID = next(recording["said"] for recording in recordings() if recording["name"] == "refund-call")
LINES = [f"Order {10_000 + number * 37} was sent to customer {number}." for number in range(20)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("lake"), **{"limits.step_seconds": 500.0})
    yield lab
    lab.sandbox.close()


def at_rate(samples: Samples, rate: int) -> Samples:
    at = np.arange(len(samples) * rate // SAMPLE_RATE) * SAMPLE_RATE / rate
    return np.interp(at, np.arange(len(samples)), samples).astype(np.int16)


def music(seconds: int) -> Samples:
    """Four chords, each tone with two of its overtones."""
    at = np.arange(SAMPLE_RATE * seconds // 4) / SAMPLE_RATE
    chords = ((262, 330, 392), (220, 262, 330), (175, 220, 262), (196, 247, 294))
    played = [
        sum(np.sin(2 * np.pi * tone * part * at) / part for tone in chord for part in (1, 2, 3)) * np.exp(-at)
        for chord in chords
    ]
    return (np.concatenate(played) * 2_500).astype(np.int16)


NO_WORDS: dict[str, Callable[[], bytes]] = {
    "silence": lambda: wav_bytes(np.zeros(SAMPLE_RATE * 2, np.int16)),
    "0.05 s of a voice": lambda: wav_bytes(CALL[8_000:8_800]),
    "noise": lambda: wav_bytes(np.random.default_rng(3).normal(0, 6_000, SAMPLE_RATE * 4).astype(np.int16)),
    "music": lambda: wav_bytes(music(8)),
    "a tone": lambda: wav_bytes(media.tone(3)),
    "a call that is clipped to nothing but edges": lambda: wav_bytes(
        np.where(np.random.default_rng(4).random(SAMPLE_RATE * 2) < 0.5, -32_768, 32_767).astype(np.int16)
    ),
}


@pytest.mark.parametrize("name", NO_WORDS)
def test_what_holds_no_word_is_given_none(lab: Lab, name: str) -> None:
    result = lab.derive("a.wav", NO_WORDS[name]())["transcribe"]
    assert "fault" in result or result["ok"]["text"] == "", result


def test_a_call_at_8_khz_and_one_side_of_48_khz_stereo_are_heard(lab: Lab) -> None:
    one = at_rate(CALL, 48_000)
    calls = {
        "8 kHz": wav_bytes(at_rate(CALL, 8_000), rate=8_000),
        "one side": wav_bytes(np.stack([one, np.zeros_like(one)], axis=1).reshape(-1), rate=48_000, channels=2),
    }
    for name, data in calls.items():
        results = lab.derive("a.wav", data)
        assert not faults(results), results
        heard = results["transcribe"]["ok"]
        assert word_error_rate(plain_words(SAID), plain_words(heard["text"])) <= 0.1, name
        assert heard["language"] == "en"


def test_a_picture_of_one_pixel_says_nothing(lab: Lab) -> None:
    results = lab.derive("a.png", media.picture("PNG", Image.new("RGB", (1, 1), "white")))
    assert not faults(results) and results["caption"]["ok"]["text"] == ""


def test_a_screenshot_of_10_000_pixels_height_is_read_to_its_end(lab: Lab) -> None:
    page = Image.new("RGB", (760, 10_000), "white")
    for number, line in enumerate(LINES):
        text = Image.new("RGB", (380, 14), "white")
        ImageDraw.Draw(text).text((4, 1), line, fill="black")
        page.paste(text.resize((760, 28), Image.Resampling.LANCZOS), (0, 20 + number * 499))
    said = lab.derive("a.png", media.picture("PNG", page))["caption"]["ok"]
    assert character_accuracy("\n".join(LINES), said["text"]) > 0.97
    assert [round(part["box"][1] / 499) for part in said["segments"]] == list(range(len(LINES)))


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_screenshot_on_its_side_or_head_is_read_as_if_it_stood(lab: Lab, degrees: int) -> None:
    lines = ["Payment failed", "Your card ending in 4821 was declined."]
    turned = draw_screen(lines[0], lines[1:]).rotate(degrees, expand=True)
    said = lab.derive("a.png", media.picture("PNG", turned))["caption"]["ok"]
    assert said["text"].splitlines() == lines
    boxes = [part["box"] for part in said["segments"]]
    for left, top, right, bottom in boxes:
        assert 0 <= left < right <= turned.width and 0 <= top < bottom <= turned.height
        assert (bottom - top > right - left) == (degrees != 180)
    # The first line lies at the left, below or at the right of the second.
    (first, second), side = boxes, {90: 0, 180: 1, 270: 0}[degrees]
    assert (first[side] < second[side]) == (degrees == 90)


def test_a_strip_ends_where_no_line_is_cut_through_and_boxes_lie_in_the_whole() -> None:
    tall = np.full((5_000, 300, 3), 255, np.uint8)
    for top in range(0, 5_000, 50):
        tall[top : top + 30, ::2] = 0  # a line of text

    def read(strip: Picture) -> Said:
        assert max(strip.shape) <= SIDE_MAX and strip.flags.c_contiguous
        assert strip[-1].min() == 255, "cut through a line"
        return Said("x", None, 0.5, (Segment("x", Locator(box=(1, 2, 3, float(len(strip))))),))

    said = read_in_strips(tall, read)
    boxes = [part.locator.box for part in said.segments]
    assert boxes[0] and boxes[0][1] == 2 and boxes[-1] and boxes[-1][3] == 5_000
    assert said.text == "x\nx\nx" and said.confidence == 0.5 and said.attempts == 3
    wide = read_in_strips(
        tall.transpose(1, 0, 2), lambda _: Said("y", None, None, (Segment("y", Locator(box=(0, 0, 1, 1))),))
    )
    lefts = [part.locator.box[0] for part in wide.segments if part.locator.box]
    assert lefts == sorted(lefts) and lefts[0] == 0 and len(lefts) == 3 and wide.confidence is None


@pytest.mark.parametrize(
    ("size", "most"),
    [
        ((800, 10_000), (SIDE_MAX, SIDE_MAX * STRIPS_MAX)),
        ((5_760, 1_080), (SIDE_MAX * STRIPS_MAX, SIDE_MAX)),
        ((4_000, 3_000), (SIDE_MAX, SIDE_MAX)),
        ((1, 20_000_000), (SIDE_MAX, SIDE_MAX)),
    ],
)
def test_what_is_long_is_read_in_strips(size: tuple[int, int], most: tuple[int, int]) -> None:
    assert largest(*size, in_strips=True) == most
    assert largest(*size, in_strips=False) == (SIDE_MAX, SIDE_MAX)


@pytest.mark.parametrize(
    "text", ["", "   ", "\U0001f600\U0001f389\U0001f64f", "\u200b\ufeff", "\x00", "x" * 100_000, "\u8ba2" * 100_000]
)
@pytest.mark.parametrize("kind", ["static", "minilm", "bge"])
def test_a_text_of_no_word_or_of_one_without_end_has_a_place_or_none(kind: str, text: str) -> None:
    model = load_model(kind)
    model.load()
    (vector,) = model.run([text])
    assert np.isfinite(vector).all() and float(np.linalg.norm(vector)) == pytest.approx(
        1 if text.strip() else 0, abs=1e-3
    )
