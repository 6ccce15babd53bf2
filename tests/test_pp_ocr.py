"""What PP-OCRv6 promises: screens read to the letter, with their blanks and accents, without a network."""

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from headwater.demo.drawing import draw_screen
from headwater.demo.media import SCREENS
from headwater.domain.words import character_accuracy
from headwater.errors import Unavailable
from headwater.flow.models import pp_ocr
from headwater.flow.models.port import Model, Picture
from headwater.flow.models.registry import load_model

ACCENTS = ("Grüße aus Köln, über den Ärger", "Année scolaire, ça coûte 12,50 €", "Señor Núñez pidió más café")


@pytest.fixture(scope="module")
def eyes() -> Model:
    model = load_model("pp-ocr")
    model.load()
    return model


def accents_on_screen() -> Picture:
    """In a font that has them: Pillow's own has none."""
    import font_source_sans_pro

    picture = Image.new("RGB", (900, 320), "#0f172a")
    font = ImageFont.truetype(font_source_sans_pro.SourceSansPro, 34)
    for number, line in enumerate(ACCENTS):
        ImageDraw.Draw(picture).text((40, 40 + number * 80), line, font=font, fill="#e2e8f0")
    return np.asarray(picture)


def test_screens_are_read_to_the_letter_with_their_blanks(eyes: Model) -> None:
    shares = []
    for _, name, title, lines in SCREENS:
        said = eyes.run([np.asarray(draw_screen(title, lines))])[0]
        shares.append(character_accuracy("\n".join([title, *lines]), said.text))
        assert said.text.splitlines()[0] == title, name
        assert [part.text for part in said.segments] == said.text.splitlines() and said.confidence > 0.95
        assert all(part.locator.box is not None for part in said.segments)
    assert sum(shares) / len(shares) > 0.998


def test_accents_and_umlauts_are_read_as_they_stand_there(eyes: Model) -> None:
    said = eyes.run([accents_on_screen()])[0]
    assert character_accuracy("\n".join(ACCENTS), said.text) > 0.97
    assert "Köln" in said.text and "Señor" in said.text and "Grüße" in said.text


@pytest.mark.parametrize("shape", [(1, 3000, 3), (2000, 3, 3), (1, 1, 3), (200, 320, 3)])
def test_a_picture_without_text_has_none_whatever_its_shape(eyes: Model, shape: tuple[int, ...]) -> None:
    said = eyes.run([np.zeros(shape, np.uint8)])[0]
    assert (said.text, said.segments, said.confidence) == ("", (), None)


def test_weights_that_are_gone_are_not_fetched_but_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pp_ocr, "FINDER", "gone.onnx")
    with pytest.raises(Unavailable, match="rapidocr"):
        load_model("pp-ocr").load()
