"""Files that are small and claim or cost much: what somebody would send who wants to keep a lake busy for hours."""

import io
import struct
import zlib
from collections.abc import Callable, Iterator

import media
import numpy as np
from PIL import Image

from headwater.demo.drawing import _pdf_file, draw_screen, encode_sound, encode_video, wav_bytes

Box = tuple[bytes, bytes]  # name and body
BOXES = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts"}


def slow_wav(rate: int = 1, samples: int = 7_000) -> bytes:
    """A few kilobytes of noise that claim hours, because each second has one sample."""
    return wav_bytes(np.random.default_rng(1).integers(-9_000, 9_000, samples).astype(np.int16), rate=rate)


def flac_at(rate: int) -> bytes:
    """FLAC whose header claims another rate; frames say «as in the header»."""
    data = bytearray(encode_sound(media.tone(2), "flac", "flac", rate=16_000))
    packed = int.from_bytes(data[18:26], "big")
    packed = packed & ((1 << 44) - 1) | rate << 44
    data[18:26] = packed.to_bytes(8, "big")
    return bytes(data)


def flac_claiming(samples: int) -> bytes:
    """Two seconds of sound whose header claims to hold so many samples."""
    data = bytearray(flac_at(16_000))
    data[21] &= 0xF0  # they are counted in 36 bits
    data[22:26] = samples.to_bytes(4, "big")
    return bytes(data)


def boxes(data: bytes) -> Iterator[Box]:
    position = 0
    while position + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, position)
        yield name, data[position + 8 : position + length]
        position += length


def packed_boxes(found: list[Box]) -> bytes:
    return b"".join(struct.pack(">I4s", len(body) + 8, name) + body for name, body in found)


def changed_boxes(data: bytes, change: Callable[[bytes, bytes], bytes | None]) -> bytes:
    """The boxes with other bodies; None keeps one as it is, and looks inside it."""
    out = []
    for name, body in boxes(data):
        new = change(name, body)
        out.append((name, new if new is not None else changed_boxes(body, change) if name in BOXES else body))
    return packed_boxes(out)


def many_frames(count: int, delta: int, *, frame: int | None = None, scale: int = 1_000) -> bytes:
    """A video whose index names one frame `count` times, each lasting `delta` of `scale` parts of a second."""
    data = encode_video([(media.screen(), 0.1)], None)
    at = data.index(b"mdat") + 4
    size = frame or _first_frame(dict(_deep(data))[b"stsz"])
    tables = {
        b"stts": struct.pack(">IIII", 0, 1, count, delta),
        b"stsz": struct.pack(">III", 0, size, count),
        b"stsc": struct.pack(">IIIII", 0, 1, 1, 1, 1),
        b"ctts": struct.pack(">II", 0, 0),
        b"elst": struct.pack(">II", 0, 0),
    }
    sync = struct.pack(">III", 0, 1, 1)
    duration = count * delta

    def change(name: bytes, body: bytes) -> bytes | None:
        if name == b"stco":
            return struct.pack(">II", 0, count) + struct.pack(">I", at) * count
        if name == b"stss":
            return sync
        if name in {b"mvhd", b"mdhd"}:
            new = bytearray(body)
            struct.pack_into(">II", new, 12, scale, duration)
            return bytes(new)
        if name == b"tkhd":
            new = bytearray(body)
            struct.pack_into(">I", new, 20, duration)
            return bytes(new)
        return tables.get(name)

    parts = dict(boxes(data))
    found = [(name, body) for name, body in boxes(data) if name != b"moov"]
    moov = changed_boxes(packed_boxes([(b"moov", parts[b"moov"])]), change)
    return packed_boxes(found) + moov


def _first_frame(table: bytes) -> int:
    uniform = struct.unpack_from(">I", table, 4)[0]
    return int(uniform or struct.unpack_from(">I", table, 12)[0])


def _deep(data: bytes) -> Iterator[Box]:
    for name, body in boxes(data):
        yield name, body
        if name in BOXES:
            yield from _deep(body)


def edited(count: int) -> bytes:
    """A video that its edit list plays `count` times."""
    data = encode_video([(media.screen(), 1.0)], None)
    entry = struct.pack(">IiI", 1_000, 0, 0x10000)

    def change(name: bytes, body: bytes) -> bytes | None:
        return struct.pack(">II", 0, count) + entry * count if name == b"elst" else None

    parts = [(name, body) for name, body in boxes(data) if name != b"moov"]
    moov = changed_boxes(packed_boxes([(b"moov", dict(boxes(data))[b"moov"])]), change)
    return packed_boxes(parts) + moov


def many_gif_frames(count: int) -> bytes:
    """GIF by hand: Pillow would take minutes to write so many."""
    buffer = io.BytesIO()
    Image.new("P", (16, 16)).save(buffer, "GIF")
    data = buffer.getvalue()
    head = 13 + (3 << ((data[10] & 7) + 1) if data[10] & 0x80 else 0)
    return data[:head] + data[head:-1] * count + b";"


def png(width: int, height: int) -> bytes:
    """A whole picture of one colour and any shape."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    pack = zlib.compressobj(9)
    rows = bytes(1 + (width + 7) // 8)
    parts = [pack.compress(rows * 1000) for _ in range(height // 1000)] + [pack.compress(rows * (height % 1000))]
    body = b"".join(parts) + pack.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def deep_pdf(depth: int) -> bytes:
    """A page tree in which each node has one child, and the page is at the bottom."""
    nodes = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    for number in range(2, depth + 2):
        parent = b"/Parent %d 0 R " % (number - 1) if number > 2 else b""
        nodes.append(b"<< /Type /Pages %s/Kids [%d 0 R] /Count 1 >>" % (parent, number + 1))
    nodes.append(b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 100 100] >>" % (depth + 1))
    return _pdf_file(nodes)


def crowded_pdf(objects: int) -> bytes:
    """One page of text, and so many objects that nobody needs."""
    fonts = b"/Resources << /Font << /F1 3 0 R >> >>"
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 5 0 R %s >>" % fonts,
        b"<< /Length 40 >>\nstream\nBT /F1 14 Tf 60 770 Td (one page) Tj ET   \nendstream",
    ]
    return _pdf_file(bodies + [b"null"] * objects)


def same_page_pdf(pages: int, drawings: int) -> bytes:
    """Many pages that are one and the same, which takes long to draw."""
    lines = (b"%d %d m %d %d l S\n" % (i % 595, i % 842, i * 7 % 595, i * 3 % 842) for i in range(drawings))
    content = zlib.compress(b"".join(lines), 9)
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b"3 0 R " * pages, pages),
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(content), content),
    ]
    return _pdf_file(bodies)


def scans(pages: int) -> bytes:
    """A document of pages that are pictures."""
    buffer = io.BytesIO()
    pictures = [draw_screen(f"Page {number}", [media.LINE], size=(480, 270)) for number in range(1, pages + 1)]
    pictures[0].save(buffer, "PDF", save_all=True, append_images=pictures[1:])
    return buffer.getvalue()
