"""A picture of a page, a frame or a picture, drawn where a hostile file costs one picture and nobody else's."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import media
import psutil
import pytest
from conftest import lake_settings
from PIL import Image

from headwater.demo.drawing import encode_video
from headwater.domain.pointer import Pointer
from headwater.errors import DataFault, InvalidRequest
from headwater.flow.preview.preview import Previews
from headwater.settings import Settings
from headwater.storage.raw.directory_store import DirectoryRawStore
from headwater.storage.raw.store import RawStore

PIXELS = 2_000_000


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return lake_settings(tmp_path / "lake", **{"limits.pixels": PIXELS, "limits.child_mb": 512})


@pytest.fixture
def store(tmp_path: Path) -> RawStore:
    return DirectoryRawStore(tmp_path / "raw")


@pytest.fixture
def previews(settings: Settings, store: RawStore) -> Iterator[Previews]:
    opened = Previews(settings, store)
    yield opened
    opened.close()


def put(store: RawStore, name: str, data: bytes, content_type: str) -> Pointer:
    return store.put_bytes(f"images/acme/2026-03-01/{name}", data, content_type)


def image_bytes(size: tuple[int, int], kind: str) -> bytes:
    kept = io.BytesIO()
    Image.new("RGB", size, "white").save(kept, kind)
    return kept.getvalue()


def opened(jpeg: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(jpeg))
    assert image.format == "JPEG"
    return image


def test_each_page_of_a_pdf_is_drawn_and_there_are_no_others(previews: Previews, store: RawStore) -> None:
    from fpdf import FPDF

    document = FPDF(format=(100, 200))
    for color in (0, 200):
        document.add_page()
        document.set_fill_color(color)
        document.rect(0, 0, 100, 200, "F")
    pointer = put(store, "two.pdf", bytes(document.output()), "application/pdf")
    first, second = (opened(previews.draw("document", pointer, page=number, width=100)) for number in (1, 2))
    assert first.width == second.width == 100
    assert abs(first.height - 200) <= 1
    dark, light = (page.convert("L").getpixel((50, 100)) for page in (first, second))
    assert (dark, light) == (pytest.approx(0, abs=20), pytest.approx(200, abs=20))
    assert opened(previews.draw("document", pointer, width=100)).tobytes() == first.tobytes()
    with pytest.raises(DataFault, match="2 pages, so there is no page 3"):
        previews.draw("document", pointer, page=3)


def test_pictures_that_no_browser_shows_are_drawn_no_wider_than_asked(previews: Previews, store: RawStore) -> None:
    pointer = put(store, "scan.tiff", image_bytes((1_600, 800), "TIFF"), "image/tiff")
    assert opened(previews.draw("image", pointer, width=400)).size == (400, 200)
    small = put(store, "small.bmp", image_bytes((20, 10), "BMP"), "image/bmp")
    assert opened(previews.draw("image", small, width=400)).size == (20, 10)


def test_a_picture_inside_a_larger_object_is_drawn_from_where_it_begins(previews: Previews, store: RawStore) -> None:
    data = image_bytes((20, 10), "PNG")
    whole = put(store, "packed.bin", b"before" + data, "image/png")
    assert opened(previews.draw("image", replace(whole, offset=6, size=len(data)))).size == (20, 10)


def test_what_has_no_picture_says_so(previews: Previews, store: RawStore) -> None:
    pointer = put(store, "call.wav", b"RIFF", "audio/wav")
    with pytest.raises(InvalidRequest, match="There is no picture of audio/wav"):
        previews.draw("audio", pointer)
    with pytest.raises(InvalidRequest, match="16 to 3,000 points"):
        previews.draw("image", pointer, width=100_000)


def test_hostile_bytes_cost_one_picture(previews: Previews, store: RawStore) -> None:
    good = put(store, "good.png", image_bytes((20, 10), "PNG"), "image/png")
    for number, (data, kind, modality) in enumerate(
        [
            (b"%PDF-1.7 nothing", "application/pdf", "document"),
            (b"<html><script>", "image/png", "image"),
            (image_bytes((2_000, 2_000), "PNG"), "image/png", "image"),  # more than limits.pixels
            (b"\0\0\0\x18ftypmp42" + bytes(200), "video/mp4", "video"),
            (b"", "image/png", "image"),
        ]
    ):
        pointer = put(store, f"bad-{number}", data, kind)
        with pytest.raises(DataFault, match="picture of it can be drawn"):
            previews.draw(modality, pointer)
        assert opened(previews.draw("image", good)).size == (20, 10)


def test_a_child_that_is_killed_or_says_nothing_is_succeeded(tmp_path: Path, store: RawStore) -> None:
    good = put(store, "good.png", image_bytes((20, 10), "PNG"), "image/png")
    previews = Previews(lake_settings(tmp_path / "hasty", **{"limits.step_seconds": 3.0}), store)
    previews.draw("image", good)
    (first,) = children()
    first.kill()
    first.wait(10)
    assert opened(previews.draw("image", good)).size == (20, 10)
    (second,) = children()
    second.suspend()
    with pytest.raises(DataFault, match=r"longer than limits\.step_seconds, 3 s"):
        previews.draw("image", good)
    previews.close()
    assert children() == []
    assert opened(previews.draw("image", good)).size == (20, 10), "closed, it begins anew"
    previews.close()


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "headwater.flow.preview.child" in child.cmdline()]


def test_a_frame_of_a_video_is_the_one_of_its_moment(previews: Previews, store: RawStore) -> None:
    screens = [(Image.new("RGB", (320, 240), color), 2.0) for color in ("black", "white")]
    pointer = put(store, "film.mp4", encode_video(screens, None), "video/mp4")
    moments = {at: opened(previews.draw("video", pointer, frame_ms=at)).convert("L") for at in (0, 3_000, 99_000)}
    assert {at: image.getpixel((160, 120)) > 127 for at, image in moments.items()} == {  # type: ignore[operator]
        0: False,
        3_000: True,
        99_000: True,
    }
    heic = put(store, "photo.heic", media.heic(), "image/heic")
    assert opened(previews.draw("image", heic)).size == (640, 360)
