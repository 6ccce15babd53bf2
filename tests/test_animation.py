"""An animated GIF is read picture by picture, each line where it appears; AVIF is a picture like any other."""

import io
from collections.abc import Iterator

import pytest
from test_decoding import Lab, faults

from headwater.demo.drawing import draw_screen


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("lake"), **{"limits.step_seconds": 300.0})
    yield lab
    lab.sandbox.close()


def animated(*titles: str) -> bytes:
    first, *others = (draw_screen(title, ["Please wait for it"], size=(640, 360)) for title in titles)
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=500, loop=0)
    return buffer.getvalue()


def test_each_line_of_an_animation_is_told_once_where_it_appears(lab: Lab) -> None:
    results = lab.derive("a.gif", animated("Loading", "Loading", "Finished"))
    assert faults(results) == [], results
    parts = results["caption"]["ok"]["segments"]
    told = {part["text"]: part["frame_ms"] for part in parts}
    assert told["Loading"] == 0 and told["Finished"] == 1000
    assert sum("wait" in part["text"] for part in parts) == 1 and all(part["box"] for part in parts)


def test_a_gif_of_one_picture_and_an_avif_are_read_as_pictures(lab: Lab) -> None:
    for name, kind in (("a.gif", "GIF"), ("a.avif", "AVIF")):
        buffer = io.BytesIO()
        draw_screen("Payment", ["failed"], size=(640, 360)).save(buffer, kind)
        results = lab.derive(name, buffer.getvalue())
        assert results["probe"]["ok"]["codec"] == kind.lower()
        (first, *_) = results["caption"]["ok"]["segments"]
        assert first["text"] == "Payment" and first["frame_ms"] is None
        assert faults(lab.derive(name, buffer.getvalue()[: len(buffer.getvalue()) // 2])), "cut in half"
