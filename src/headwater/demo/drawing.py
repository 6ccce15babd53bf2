"""Pictures, videos and documents that say something known: for the demo, and for tests that read them back."""

import io
import struct
import wave
import zlib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import av
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

VIDEO_RATE: Final = 10
SCREEN: Final = (960, 540)

Samples = npt.NDArray[np.int16]


def draw_screen(
    title: str, lines: Sequence[str], *, size: tuple[int, int] = SCREEN, paper: str = "#f3f4f6", ink: str = "#111827"
) -> Image.Image:
    """A dialog on a screen, in the font that comes with Pillow."""
    picture = Image.new("RGB", size, paper)
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 0, size[0], 40), fill="#1d4ed8")
    pen.text((60, 70), title, font=ImageFont.load_default(size=34), fill=ink)
    for number, line in enumerate(lines):
        pen.text((60, 140 + number * 54), line, font=ImageFont.load_default(size=23), fill=ink)
    return picture


def wav_bytes(samples: Samples, *, rate: int = 16_000, channels: int = 1, width: int = 2) -> bytes:
    """`samples` are interleaved; a width of 1 or 3 bytes keeps the loudness."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(_packed(samples, width))
    return buffer.getvalue()


def _packed(samples: Samples, width: int) -> bytes:
    if width == 1:
        return ((samples.astype(np.int32) >> 8) + 128).astype(np.uint8).tobytes()
    if width == 3:
        wide = (samples.astype("<i4") << 8).view(np.uint8).reshape(-1, 4)
        return wide[:, :3].tobytes()
    return samples.astype("<i2").tobytes()


def encode_sound(samples: Samples, container: str, codec: str, *, rate: int = 16_000, options: Any = None) -> bytes:
    """Mono sound in a container of FFmpeg's: `mp3`, `flac`, `ogg`, `ipod` (M4A), `adts`."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container, options=options or {}) as media:
        _add_sound(media, media.add_stream(codec, rate=rate, layout="mono"), samples, rate)
    return buffer.getvalue()


def encode_video(
    screens: Sequence[tuple[Image.Image, float]], sound: Samples | None, *, container: str = "mp4", rate: int = 16_000
) -> bytes:
    """Each screen for so many seconds, with sound or without."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as media:
        codec = next(name for name in ("libx264", "mpeg4") if name in av.codecs_available)
        stream: Any = media.add_stream(codec, rate=VIDEO_RATE)
        stream.width, stream.height, stream.pix_fmt = *screens[0][0].size, "yuv420p"
        stream.codec_context.thread_count = 1
        voice: Any = media.add_stream("aac", rate=rate, layout="mono", bit_rate=96_000) if sound is not None else None
        for index, picture in enumerate(_repeated(screens)):
            frame = av.VideoFrame.from_ndarray(np.asarray(picture), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, VIDEO_RATE)
            media.mux(stream.encode(frame))
        media.mux(stream.encode(None))
        if sound is not None:
            _add_sound(media, voice, sound, rate)
    return buffer.getvalue()


def _repeated(screens: Sequence[tuple[Image.Image, float]]) -> list[Image.Image]:
    return [picture for picture, seconds in screens for _ in range(round(seconds * VIDEO_RATE))]


def _add_sound(media: Any, stream: Any, samples: Samples, rate: int) -> None:
    for start in range(0, len(samples), rate):
        frame = av.AudioFrame.from_ndarray(samples[None, start : start + rate], format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
        media.mux(stream.encode(frame))
    media.mux(stream.encode(None))


def pdf_bytes(pages: Sequence[Sequence[str]]) -> bytes:
    """A small PDF of text, one list of lines a page, written by hand: four objects and two for each page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, lines in enumerate(pages):
        bodies.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        content = _page_content(lines)
        bodies.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
    return _pdf_file(bodies)


def _page_content(lines: Sequence[str]) -> bytes:
    shown = [line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") for line in lines]
    text = " T* ".join(f"({line}) Tj" for line in shown)
    return f"BT /F1 14 Tf 20 TL 60 770 Td {text} ET".encode("cp1252", "replace")


def _pdf_file(bodies: Sequence[bytes]) -> bytes:
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(bodies, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(bodies) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(bodies) + 1, start)
    return bytes(out)


def png_claiming(width: int, height: int) -> bytes:
    """A few bytes that claim to be a picture of any size."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def read_wav(path: Path) -> Samples:
    with wave.open(str(path), "rb") as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16)
