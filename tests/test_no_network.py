"""Models that come with set-up ask the network for nothing, tell it nothing, and leave nothing in anybody's home."""

from pathlib import Path

import pytest
from embedded import HEAR, PLACE, READ, answer_offline

from headwater.demo.drawing import draw_screen
from headwater.demo.media import RECORDINGS


@pytest.fixture
def screen(tmp_path: Path) -> Path:
    draw_screen("Payment failed", ["Your card ending in 4821 was declined."]).save(tmp_path / "screen.png")
    return tmp_path / "screen.png"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("moonshine", "I would like to cancel my order and get my money back."),
        ('moonshine {"diarise": true}', "I would like to cancel my order and get my money back."),
        ("pocketsphinx", "i would like to cancel my order and get my money back"),
    ],
)
def test_speech(model: str, words: str, tmp_path: Path) -> None:
    assert answer_offline(HEAR, model, RECORDINGS / "refund-call.wav", tmp_path / "home") == words


@pytest.mark.parametrize("model", ["pp-ocr", "rapidocr"])
def test_pictures(model: str, screen: Path, tmp_path: Path) -> None:
    """It is onnxruntime that would report, and keep a device's number for that."""
    text = answer_offline(READ, model, screen, tmp_path / "home")
    assert text == "Payment failed\nYour card ending in 4821 was declined."


@pytest.mark.parametrize("model", ["static", "minilm", "bge", "lexical"])
def test_text(model: str, tmp_path: Path) -> None:
    vector = answer_offline(PLACE, model, "refund", tmp_path / "home")
    assert abs(sum(number * number for number in vector) - 1) < 1e-4
