"""Odd and broken media, made in memory: what decoders meet in the wild, each with the outcome it must have."""

import gzip
import io
import struct
import zipfile
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image

from headwater.demo.drawing import draw_screen, encode_sound, encode_video, pdf_bytes, png_claiming, read_wav, wav_bytes
from headwater.demo.media import RECORDINGS

Samples = npt.NDArray[np.int16]
Made = tuple[str, Callable[[], bytes]]  # a file name, whose ending says what it claims to be, and its bytes

TITLE, LINE = "Payment failed", "Please update your payment details."


def call() -> Samples:
    return read_wav(RECORDINGS / "refund-call.wav")


def tone(seconds: float = 1.0) -> Samples:
    moments = np.arange(int(seconds * 16_000)) / 16_000
    return (np.sin(2 * np.pi * 440 * moments) * 8_000).astype(np.int16)


def screen(size: tuple[int, int] = (640, 360)) -> Image.Image:
    return draw_screen(TITLE, [LINE], size=size)


def picture(form: str, image: Image.Image | None = None, **options: object) -> bytes:
    buffer = io.BytesIO()
    (image or screen()).save(buffer, form, **options)
    return buffer.getvalue()


def heic() -> bytes:
    from pillow_heif import from_pillow

    buffer = io.BytesIO()
    from_pillow(screen()).save(buffer, quality=90)
    return buffer.getvalue()


def video(*, sound: bool = True, container: str = "mp4") -> bytes:
    return encode_video([(screen(), 1.0)], tone() if sound else None, container=container)


def patched_wav(offset: int, form: str, *values: int) -> bytes:
    data = bytearray(wav_bytes(tone()))
    struct.pack_into(form, data, offset, *values)
    return bytes(data)


def adpcm_wav() -> bytes:
    return patched_wav(20, "<HHIIHH", 0x11, 2, 8_000, 1, 65_535, 4)


def small_wav_claiming(size: int) -> bytes:
    data = bytearray(wav_bytes(tone()[:478]))
    struct.pack_into("<I", data, 40, size)
    return bytes(data)


def without_index(data: bytes) -> bytes:
    """A recording that was killed before its index was written: all boxes but `moov`."""
    out, position = bytearray(), 0
    while position < len(data):
        length, name = struct.unpack_from(">I4s", data, position)
        if name != b"moov":
            out += data[position : position + length]
        position += length
    return bytes(out)


def locked_pdf() -> bytes:
    from fpdf import FPDF

    document = FPDF()
    document.set_encryption(owner_password="owner", user_password="user")
    document.add_page()
    document.set_font("Helvetica", size=12)
    document.cell(text="secret")
    return bytes(document.output())


def scanned_pdf() -> bytes:
    return picture("PDF", screen((960, 540)))


def zip_bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("huge", bytes(50_000_000))
    return buffer.getvalue()


TEXT = b"This is a note, not a recording.\n" * 20

BROKEN: dict[str, tuple[Made, str]] = {
    "a truncated WAV": (("a.wav", lambda: wav_bytes(call())[:20_000]), "TRUNCATED"),
    "a WAV cut in its header": (("a.wav", lambda: wav_bytes(call())[:30]), "TRUNCATED"),
    "a call of zero bytes": (("a.wav", lambda: b""), "EMPTY"),
    "a picture of zero bytes": (("a.png", lambda: b""), "EMPTY"),
    "a document of zero bytes": (("a.pdf", lambda: b""), "EMPTY"),
    "a text file named .wav": (("a.wav", lambda: TEXT), "UNREADABLE"),
    "a text file named .mp3": (("a.mp3", lambda: TEXT), "UNREADABLE"),
    "a text file named .png": (("a.png", lambda: TEXT), "UNREADABLE"),
    "a text file named .mp4": (("a.mp4", lambda: TEXT), "UNREADABLE"),
    "a text file named .pdf": (("a.pdf", lambda: TEXT), "UNREADABLE"),
    "a WAV of zero channels": (("a.wav", lambda: patched_wav(22, "<H", 0)), "UNREADABLE"),
    "a WAV at 0 Hz": (("a.wav", lambda: patched_wav(24, "<I", 0)), "UNREADABLE"),
    "a small WAV claiming 4 GB": (("a.wav", lambda: small_wav_claiming(0xFFFFFFF0)), "TRUNCATED"),
    "a WAV of negative frames": (("a.wav", lambda: small_wav_claiming(0x80000000)), "TRUNCATED"),
    "a WAV of overflowing ADPCM": (
        ("a.wav", lambda: patched_wav(20, "<HHIIHH", 0x11, 2, 8000, 1, 65535, 4)),
        "UNSUPPORTED",
    ),
    "a WAV without sound": (("a.wav", lambda: wav_bytes(tone()[:0])), "EMPTY"),
    "a truncated FLAC": (("a.flac", lambda: cut(encode_sound(call(), "flac", "flac"), 0.4)), "TRUNCATED"),
    "a PNG claiming 65,535 × 65,535": (("a.png", lambda: png_claiming(65_535, 65_535)), "TOO_LARGE"),
    "a PNG claiming 4 GB": (("a.png", lambda: png_claiming(40_000, 36_000)), "TOO_LARGE"),
    "a truncated PNG": (("a.png", lambda: cut(picture("PNG"), 0.5)), "TRUNCATED"),
    "a truncated JPEG": (("a.jpg", lambda: cut(picture("JPEG"), 0.5)), "TRUNCATED"),
    "an EPS named .png": (("a.png", lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), "UNSUPPORTED"),
    "a FITS named .tif": (("a.tif", lambda: b"SIMPLE  =                    T".ljust(2880)), "UNSUPPORTED"),
    "a GD picture named .gif": (("a.gif", lambda: b"gd2\x00" + bytes(100)), "UNSUPPORTED"),
    "a zip bomb named .png": (("a.png", zip_bomb), "UNREADABLE"),
    "a gzip bomb named .pdf": (("a.pdf", lambda: gzip.compress(bytes(50_000_000))), "UNREADABLE"),
    "a video without its index": (("a.mp4", lambda: without_index(video())), "UNREADABLE"),
    "a truncated video": (("a.mp4", lambda: cut(video(), 0.5)), "UNREADABLE"),
    "an encrypted PDF": (("a.pdf", locked_pdf), "ENCRYPTED"),
    "a PDF of 10,000 pages": (("a.pdf", lambda: pdf_bytes([["page"]] * 10_000)), "TOO_LARGE"),
    "half a PDF": (("a.pdf", lambda: cut(pdf_bytes([["page"] * 30]), 0.2)), "UNREADABLE"),
}


def cut(data: bytes, share: float) -> bytes:
    return data[: int(len(data) * share)]


UNUSUAL: dict[str, Made] = {
    "a silent call": ("a.wav", lambda: wav_bytes(np.zeros(16_000, np.int16))),
    "a stereo call": ("a.wav", lambda: wav_bytes(np.repeat(tone(), 2), channels=2)),
    "a call at 8 kHz": ("a.wav", lambda: wav_bytes(tone(), rate=8_000)),
    "a call at 44.1 kHz": ("a.wav", lambda: wav_bytes(tone(), rate=44_100)),
    "a call of 24 bits": ("a.wav", lambda: wav_bytes(tone(), width=3)),
    "a call of 8 bits": ("a.wav", lambda: wav_bytes(tone(), width=1)),
    "an MP3": ("a.mp3", lambda: encode_sound(tone(), "mp3", "libmp3lame")),
    "a FLAC": ("a.flac", lambda: encode_sound(tone(), "flac", "flac")),
    "an Ogg": ("a.ogg", lambda: encode_sound(tone(), "ogg", "libopus")),
    "an M4A": ("a.m4a", lambda: encode_sound(tone(), "ipod", "aac")),
    "a raw AAC": ("a.aac", lambda: encode_sound(tone(), "adts", "aac")),
    "an M4A named .mp3": ("a.mp3", lambda: encode_sound(tone(), "ipod", "aac")),
    "a HEIC": ("a.heic", heic),
    "a WebP": ("a.webp", lambda: picture("WEBP")),
    "a GIF": ("a.gif", lambda: picture("GIF")),
    "a TIFF": ("a.tiff", lambda: picture("TIFF")),
    "a picture with transparency": ("a.png", lambda: picture("PNG", Image.new("RGBA", (200, 100), (0, 0, 0, 0)))),
    "a grey picture of 16 bits": ("a.png", lambda: picture("PNG", Image.new("I;16", (200, 100), 30_000))),
    "a CMYK JPEG": ("a.jpg", lambda: picture("JPEG", screen().convert("CMYK"))),
    "a picture of one pixel": ("a.png", lambda: picture("PNG", Image.new("RGB", (1, 1)))),
    "a strip of 3,000 × 1 pixels": ("a.png", lambda: picture("PNG", Image.new("RGB", (3_000, 1)))),
    "a screenshot without text": ("a.png", lambda: picture("PNG", Image.new("RGB", (320, 200), "navy"))),
    "a video without sound": ("a.mp4", lambda: video(sound=False)),
    "a Matroska video": ("a.mkv", lambda: video(container="matroska")),
    "a PDF without text": ("a.pdf", lambda: pdf_bytes([[]])),
}
