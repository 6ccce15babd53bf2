"""Sound and frames by PyAV, streamed: what is in memory never grows with the length of the recording."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from headwater.errors import DataFault
from headwater.flow.derive.source import Source
from headwater.flow.models.port import SAMPLE_RATE, Samples

AUDIO_CONTAINERS: Final = ("wav", "mp3", "flac", "ogg", "mov", "aac")
VIDEO_CONTAINERS: Final = ("mov", "matroska", "avi")
# Their headers say exactly how long they are; others are estimates or are told by their last page.
EXACT_CONTAINERS: Final = ("flac", "mov")
SHORT_SHARE: Final = 0.95
ALIVE_SECONDS: Final = 10


@contextmanager
def opened(source: Source, container: str) -> Iterator[Any]:
    """The source as a PyAV container; foreign errors leave as DataFault."""
    import av
    from av.error import EOFError as EndOfFile
    from av.error import FFmpegError

    av.logging.set_level(None)
    with source.open() as file:
        try:
            with av.open(file, "r", format=container, metadata_errors="replace") as media:
                yield media
        except EndOfFile as error:
            raise DataFault("TRUNCATED", "The file ends before anything can be decoded.") from error
        except MemoryError:
            raise
        except FFmpegError as error:
            raise DataFault("UNREADABLE", f"FFmpeg cannot read it: {error.strerror}.") from error


def duration_of(media: Any, stream: Any) -> int | None:
    """Milliseconds, as the container or the stream says; None where neither does."""
    if stream is not None and stream.duration is not None and stream.time_base is not None:
        return max(0, int(stream.duration * stream.time_base * 1000))
    return max(0, int(media.duration // 1000)) if media.duration is not None else None


def sound_blocks(source: Source, media: Any, stream: Any, container: str) -> Iterator[Samples]:
    """Mono, 16 kHz. Damaged packets are passed over; a sound of nothing else is UNREADABLE."""
    claimed = duration_of(media, stream)
    longest = int(source.limits.media_minutes * 60 * SAMPLE_RATE)
    heard = told = 0
    for block in _resampled(_frames(media, stream)):
        heard += len(block)
        # Headers may say too little or nothing of the length: sound that keeps coming is a sign of life.
        if heard - told >= ALIVE_SECONDS * SAMPLE_RATE:
            told = heard
            source.allow(ALIVE_SECONDS * source.limits.realtime_factor)
        if heard > longest:
            raise DataFault("TOO_LARGE", f"It is longer than limits.media_minutes, {source.limits.media_minutes:g}.")
        yield block
    if container in EXACT_CONTAINERS and claimed and heard * 1000 / SAMPLE_RATE < claimed * SHORT_SHARE - 500:
        raise DataFault("TRUNCATED", f"It claims {claimed} ms; only {heard * 1000 // SAMPLE_RATE} ms are there.")


def _frames(media: Any, stream: Any) -> Iterator[Any]:
    from av.error import InvalidDataError

    stream.codec_context.thread_count = 1
    sound, damaged = 0, 0
    for packet in media.demux(stream):
        try:
            for frame in packet.decode():
                sound += 1
                yield frame
        except InvalidDataError:
            damaged += 1
    if damaged and damaged >= sound:
        raise DataFault("UNREADABLE", f"{damaged} damaged packets, {sound} that could be decoded.")


def _resampled(frames: Iterator[Any]) -> Iterator[Samples]:
    from av.audio.resampler import AudioResampler

    resampler, shape = None, None
    for frame in frames:
        found = (frame.format.name, frame.layout.name, frame.sample_rate)
        # Rare, but legal: a stream may change its rate or channels on the way.
        if found != shape:
            if resampler is not None:
                yield from _drained(resampler.resample(None))
            resampler, shape = AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE), found
        frame.pts = None
        yield from _drained(resampler.resample(frame))  # type: ignore[union-attr]
    if resampler is not None:
        yield from _drained(resampler.resample(None))


def _drained(frames: list[Any]) -> Iterator[Samples]:
    for frame in frames:
        yield frame.to_ndarray().reshape(-1)
