"""The child that draws previews: a stranger's file is decoded here, where a crash or a hang costs one picture.

Bounded in memory by the kernel, in time by its parent.
"""

import base64
import io
import warnings
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

from headwater.errors import DataFault, HeadwaterError, describe
from headwater.flow.child.bounds import bound_memory, open_pipes
from headwater.flow.child.frames import packed, read_message

PAGE, PICTURE, FRAME = "page", "picture", "frame"
_QUALITY: Final = 85
_FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "HEIF")
_PACKETS_MAX: Final = 20_000


def page(file: BinaryIO, job: Mapping[str, Any]) -> Any:
    import pypdfium2

    document = pypdfium2.PdfDocument(file)
    if not 1 <= job["number"] <= len(document):
        raise DataFault("UNREADABLE", f"It has {len(document)} pages, so there is no page {job['number']}.")
    found = document[job["number"] - 1]
    width, height = found.get_size()
    if width <= 0 or height <= 0:
        raise DataFault("UNREADABLE", "That page has no size.")
    scale = min(job["width"] / width, job["pixels"] / (width * height) ** 0.5 / 1_000, 3 * job["width"] / height)
    return found.render(scale=scale).to_pil()


def picture(file: BinaryIO, job: Mapping[str, Any]) -> Any:
    from PIL import AvifImagePlugin, Image, ImageOps
    from pillow_heif import register_heif_opener

    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    register_heif_opener(thumbnails=False)
    Image.MAX_IMAGE_PIXELS = job["pixels"]
    image = Image.open(file, formats=_FORMATS)
    if image.width * image.height > job["pixels"]:
        raise DataFault("TOO_LARGE", "It has more pixels than limits.pixels.")
    image.draft("RGB", (job["width"], job["width"]))
    image.load()
    return ImageOps.exif_transpose(image)


def frame(file: BinaryIO, job: Mapping[str, Any]) -> Any:
    """The first at that moment or after it; where there is none, the last."""
    import av

    with av.open(file, mode="r") as media:
        stream = media.streams.video[0]
        stream.codec_context.thread_count = 1
        if stream.codec_context.width * stream.codec_context.height > job["pixels"]:
            raise DataFault("TOO_LARGE", "Its frames have more pixels than limits.pixels.")
        base = stream.time_base or 1
        media.seek(max(0, int(job["number"] / 1_000 / base)), stream=stream)
        last = None
        for count, found in enumerate(media.decode(stream)):
            last = found
            if found.time is None or found.time * 1_000 >= job["number"] - 1 or count > _PACKETS_MAX:
                break
        if last is None:
            raise DataFault("UNREADABLE", "No frame of it can be decoded.")
        image: Any = last.to_image()  # type: ignore[no-untyped-call]
        return image


DRAW: Final[Mapping[str, Callable[[BinaryIO, Mapping[str, Any]], Any]]] = {PAGE: page, PICTURE: picture, FRAME: frame}


def drawn(file: BinaryIO, job: Mapping[str, Any]) -> bytes:
    """As a JPEG no wider than was asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = DRAW[job["kind"]](file, job)
        image.thumbnail((job["width"], 3 * job["width"]))
        kept = io.BytesIO()
        _on_white(image).save(kept, "JPEG", quality=_QUALITY)
    return kept.getvalue()


def _on_white(image: Any) -> Any:
    from PIL import Image

    if image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info:
        alpha = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", alpha.size, "white"), alpha)
    return image.convert("RGB")


def main() -> None:
    jobs, answers = open_pipes()
    bound_memory(read_message(jobs)["child_mb"])
    while (job := read_message(jobs)) is not None:
        try:
            with open(job["file"], "rb") as file:
                answer = {"drawn": base64.b64encode(drawn(file, job)).decode()}
        except HeadwaterError as error:
            answer = {"failed": str(error)}
        except Exception as error:  # whatever a decoder raises is about these bytes
            answer = {"failed": describe(error)}
        answers.write(packed(answer))


if __name__ == "__main__":
    main()
