"""What a media file is by its own first bytes, checked here before any decoder sees it.

The container is named to the decoder, so that bytes can never choose a demuxer that is not on this list.
"""

import struct
from dataclasses import dataclass
from typing import BinaryIO, Final

from headwater.errors import DataFault, spelled
from headwater.flow.derive.source import Source

HEAD_BYTES: Final = 64
# PCM, float, A-law, µ-law. The ADPCM family is left out: its decoders miscount frames.
WAV_EXTENSIBLE: Final = 0xFFFE
WAV_CODECS: Final = {
    (1, 8): "pcm_u8",
    (1, 16): "pcm_s16le",
    (1, 24): "pcm_s24le",
    (1, 32): "pcm_s32le",
    (3, 32): "pcm_f32le",
    (3, 64): "pcm_f64le",
    (6, 8): "pcm_alaw",
    (7, 8): "pcm_mulaw",
}
CHANNELS_MAX: Final = 32
# Below, no word could be understood, and a few bytes would last for hours; above, nobody records.
RATE_MIN, RATE_MAX = 4_000, 768_000
BOXES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class WavHeader:
    channels: int
    sample_rate: int
    codec: str
    duration_ms: int


def sniff(head: bytes) -> str | None:
    """FFmpeg's name of the demuxer, or None for anything that is not on the list."""
    if head[:4] in {b"RIFF", b"RF64"} and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    if head[4:8] in {b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"}:
        return "mov"
    if head[:2] == b"\xff\xf1" or head[:2] == b"\xff\xf9":
        return "aac"
    for magic, name in ((b"fLaC", "flac"), (b"OggS", "ogg"), (b"\x1a\x45\xdf\xa3", "matroska"), (b"ID3", "mp3")):
        if head.startswith(magic):
            return name
    if len(head) > 3 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 and head[1] & 0x18 != 0x08 and head[1] & 0x06:
        return "mp3"
    return None


def container_of(source: Source, allowed: tuple[str, ...]) -> str:
    """The demuxer for the source; raises DataFault where the header already shows that it cannot work."""
    source.require_bytes()
    head = source.head(HEAD_BYTES)
    name = sniff(head)
    if name is None and head[:4] == b"RIFF" and len(head) < 12:
        raise DataFault("TRUNCATED", "The file ends inside its header.")
    if name not in allowed:
        raise DataFault("UNREADABLE", f"The first bytes, {spelled(head[:8])}, are not those of {source.content_type}.")
    if name == "wav":
        wav_header(source)
    if name == "mov":
        with source.open() as file:
            check_mp4(file, source.size)
    return name


@dataclass(frozen=True, slots=True)
class _WavFormat:
    channels: int
    sample_rate: int
    codec: str
    block: int


def wav_header(source: Source) -> WavHeader:
    with source.open() as file:
        return check_wav(file, source.size)


def check_wav(file: BinaryIO, size: int) -> WavHeader:
    """Walk the chunks up to the sound and hold each claim against the file."""
    file.seek(12)
    form: _WavFormat | None = None
    while len(start := file.read(8)) == 8:
        name, length = struct.unpack("<4sI", start)
        if name == b"data":
            return _wav_sound(form, length, size - file.tell())
        end = file.tell() + length + length % 2
        if end > size + length % 2:
            raise DataFault("TRUNCATED", f"The {spelled(name)} chunk claims {length} bytes, more than the file holds.")
        if name == b"fmt ":
            form = _wav_format(file.read(min(length, 40)))
        file.seek(end)
    raise DataFault("TRUNCATED" if start or form else "UNREADABLE", "The file ends before its sound begins.")


def require_sound(channels: int, rate: int) -> None:
    """Whatever a header or a frame claims: what no recorder makes is not decoded."""
    if not 1 <= channels <= CHANNELS_MAX or not RATE_MIN <= rate <= RATE_MAX:
        raise DataFault("UNREADABLE", f"It claims {channels} channels at {rate} Hz.")


def _wav_format(body: bytes) -> _WavFormat:
    if len(body) < 16:
        raise DataFault("UNREADABLE", f"The format chunk has {len(body)} bytes; 16 are needed.")
    form, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", body)
    if form == WAV_EXTENSIBLE and len(body) >= 26:
        form = struct.unpack_from("<H", body, 24)[0]
    require_sound(channels, rate)
    codec = WAV_CODECS.get((form, bits))
    if codec is None:
        raise DataFault("UNSUPPORTED", f"WAV format 0x{form:04x} with {bits} bits is not taken.")
    if block != channels * bits // 8:
        raise DataFault("UNREADABLE", f"It claims {channels} channels of {bits} bits in blocks of {block} bytes.")
    return _WavFormat(channels, rate, codec, block)


def _wav_sound(form: _WavFormat | None, length: int, left: int) -> WavHeader:
    if form is None:
        raise DataFault("UNREADABLE", "The sound comes before its format.")
    if length > left:
        raise DataFault("TRUNCATED", f"The sound claims {length} bytes; the file holds {left}.")
    if length < form.block:
        raise DataFault("EMPTY", "It holds no sound at all.")
    return WavHeader(form.channels, form.sample_rate, form.codec, length // form.block * 1000 // form.sample_rate)


def check_mp4(file: BinaryIO, size: int) -> None:
    """Walk the outer boxes: the index must be there, and every box must fit."""
    position, found = 0, False
    for _ in range(BOXES_MAX):
        if position >= size:
            break
        file.seek(position)
        length, name = _box(file.read(16), size - position)
        if name == b"moov" and length <= size - position:
            found = True
        if length > size - position:
            if found:
                raise DataFault(
                    "TRUNCATED", f"The {spelled(name)} box claims {length} bytes; {size - position} are left."
                )
            break
        position += length
    if not found:
        raise DataFault("UNREADABLE", "The index (moov) is missing: the recording was not finished.")


def _box(start: bytes, left: int) -> tuple[int, bytes]:
    if len(start) < 8:
        return left, b""  # a few stray bytes at the end harm nobody
    length, name = struct.unpack_from(">I4s", start)
    if length == 1 and len(start) == 16:
        length = struct.unpack_from(">Q", start, 8)[0]
    elif length == 0:
        length = left
    if length < 8:
        raise DataFault("UNREADABLE", f"A box claims {length} bytes.")
    return length, name
