"""Images: a screenshot, its facts and what is to be read in it."""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import numpy as np

from headwater.domain.locator import Segment
from headwater.errors import DataFault, spelled
from headwater.flow.derive.animation import READ_MAX, differing, together
from headwater.flow.derive.source import Limits, Source
from headwater.flow.derive.step import Effort, StepResult, probed, said_result
from headwater.flow.derive.strips import largest, read_in_strips
from headwater.flow.models.answers import checked_embedded
from headwater.flow.models.loaded import GuardedModel, Models
from headwater.flow.models.port import Picture, Said

FRAME_SECONDS: Final = 5.0  # that a picture of an animation earns
FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "HEIF", "AVIF")
# Known, and deliberately not decoded: interpreters and rare formats are where decoders break.
REFUSED: Final = {b"%!PS": "PostScript", b"SIMPLE": "FITS", b"gd2": "GD", b"8BPS": "Photoshop", b"<svg": "SVG"}


def probe(source: Source, models: Models) -> StepResult:
    with _opened(source) as image:
        width, height = image.size
        return probed(width=width, height=height, codec=image.format.lower())


def caption(source: Source, models: Models) -> StepResult:
    model = models.loaded("models.caption")
    with _opened(source) as image:
        if getattr(image, "is_animated", False) and image.format == "GIF" and not model.card.price:
            return _animated(source, image, model)
        full = image.size
        # Who is paid by the picture is given one, as the quote says.
        picture, turned = _decoded(image, in_strips=not model.card.price)
    wide = full[::-1] if turned else full
    source.allow(model.card.deadline_seconds)
    started = time.perf_counter()
    said = read_in_strips(picture, lambda strip: model.run([strip])[0])
    effort = Effort(time.perf_counter() - started, images=1)
    return said_result(scaled(said, wide[0] / picture.shape[1]), model.card, effort)


def _animated(source: Source, image: Any, model: GuardedModel) -> StepResult:
    """Who is paid by the picture is given the first one alone."""
    started = time.perf_counter()
    read: list[tuple[int, Said]] = []

    def so_far() -> StepResult:
        return said_result(together(read), model.card, Effort(time.perf_counter() - started, images=len(read)))

    for moment, frame in islice(differing(image), READ_MAX):
        shown, _ = _decoded(frame.copy())
        source.allow(model.card.deadline_seconds + FRAME_SECONDS)
        read.append((moment, scaled(model.run([shown])[0], image.size[0] / shown.shape[1])))
        source.keep(so_far)
    return so_far()


def picture(source: Source, models: Models) -> StepResult:
    """A vector of the picture itself, among which words are looked for."""
    model = models.loaded("models.picture")
    with _opened(source) as image:
        shown, _ = _decoded(image)
    source.allow(model.card.deadline_seconds)
    started = time.perf_counter()
    embedded = checked_embedded(model.run([shown])[0], model.card.dimension)
    return {
        "vector": embedded.vector.tolist(),
        "model_seconds": round(time.perf_counter() - started, 4),
        "tokens": embedded.tokens,
        "cost": model.card.cost(images=1, tokens=embedded.tokens),
        "attempts": embedded.attempts,
    }


def scaled(said: Said, factor: float) -> Said:
    """Boxes in pixels of the picture as it was sent, not as it was read."""
    if factor == 1:
        return said
    return replace(said, segments=tuple(_scaled(part, factor) for part in said.segments))


def _scaled(part: Segment, factor: float) -> Segment:
    if part.locator.box is None:
        return part
    left, top, right, bottom = part.locator.box
    box = (left * factor, top * factor, right * factor, bottom * factor)
    return Segment(part.text, replace(part.locator, box=box))


def require_pixels(width: int, height: int, limits: Limits) -> None:
    if width * height > limits.pixels:
        raise DataFault("TOO_LARGE", f"It claims {width} × {height} pixels; limits.pixels is {limits.pixels}.")


@contextmanager
def _opened(source: Source) -> Iterator[Any]:
    """The header is read, nothing is decoded. Pillow's errors leave as DataFault."""
    from PIL import Image, UnidentifiedImageError

    source.require_bytes()
    _prepare()
    Image.MAX_IMAGE_PIXELS = source.limits.pixels
    with source.open() as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(file, formats=FORMATS) as image:
                require_pixels(*image.size, source.limits)
                yield image
        except Image.DecompressionBombError as error:
            raise DataFault("TOO_LARGE", f"{error}") from error
        except UnidentifiedImageError as error:
            raise _unknown(source) from error
        except (OSError, SyntaxError, ValueError, IndexError, EOFError) as error:
            raise _damaged(error) from error


def _decoded(image: Any, *, in_strips: bool = False) -> tuple[Picture, bool]:
    """RGB on white, upright, no larger than is read at once or in strips; and whether it was turned by a quarter."""
    from PIL import Image, ImageOps

    most = largest(*image.size, in_strips=in_strips)
    image.draft("RGB", most)
    image.load()
    turned = image.getexif().get(0x0112) in {5, 6, 7, 8} and image.format != "HEIF"
    if image.width > most[0] or image.height > most[1]:
        image.thumbnail(most)
    upright = ImageOps.exif_transpose(image)
    if upright.mode in {"RGBA", "LA", "PA"} or "transparency" in upright.info:
        alpha = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", alpha.size, "white"), alpha)
    elif upright.mode.startswith("I;16") or upright.mode in {"I", "F"}:
        upright = _levelled(upright)
    return np.asarray(upright.convert("RGB")), turned


def _levelled(image: Any) -> Any:
    """Sixteen bits to eight; Pillow's own conversion would clip everything bright to white."""
    from PIL import Image

    values = np.asarray(image, dtype=np.float32)
    top = float(values.max(initial=0)) or 1.0
    return Image.fromarray((values.clip(0) * (255 / top)).astype(np.uint8))


def _prepare() -> None:
    from PIL import AvifImagePlugin
    from pillow_heif import register_heif_opener

    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    register_heif_opener(thumbnails=False)


def _unknown(source: Source) -> DataFault:
    head = source.head(16)
    for magic, name in REFUSED.items():
        if head.startswith(magic):
            return DataFault("UNSUPPORTED", f"{name} is not taken.")
    return DataFault("UNREADABLE", f"The first bytes, {spelled(head[:8])}, are not those of a picture that is taken.")


def _damaged(error: Exception) -> DataFault:
    text = str(error).lower()
    cut = isinstance(error, EOFError) or any(word in text for word in ("truncated", "end of file", "unexpected end"))
    return DataFault("TRUNCATED" if cut else "UNREADABLE", f"It cannot be decoded: {error}")
