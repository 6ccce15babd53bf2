"""Sound and frames by PyAV, streamed: what is in memory never grows with the length of the recording.

What a header claims earns no time. A step earns it by what it decodes, and never more than the file's bytes can hold.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from headwater.errors import DataFault
from headwater.flow.derive.containers import require_sound
from headwater.flow.derive.source import Source
from headwater.flow.models.port import SAMPLE_RATE, Samples

AUDIO_CONTAINERS: Final = ("wav", "mp3", "flac", "ogg", "mov", "aac")
VIDEO_CONTAINERS: Final = ("mov", "matroska", "avi")
# Their headers say exactly how long they are; others are estimates or are told by their last page.
EXACT_CONTAINERS: Final = ("flac", "mov")
SHORT_SHARE: Final = 0.95
EARN_SECONDS: Final = 2.0  # of media, after which the parent is told
BYTES_PER_SECOND_MIN: Final = 250  # speech with pauses takes twice as much in the most frugal of the codecs
# An index may name the same bytes again and again. What a track's packets have together is hardly more than the file.
PACKET_SHARE, PACKET_BYTES_BESIDES = 1.1, 4_096


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


def sound_blocks(source: Source, media: Any, stream: Any, container: str, *, stereo: bool = False) -> Iterator[Samples]:
    """Mono, or two columns; 16 kHz. Damaged packets are passed over; a sound of nothing else is UNREADABLE."""
    claimed = duration_of(media, stream)
    longest = int(source.limits.media_minutes * 60 * SAMPLE_RATE)
    heard, earning = 0, Earning(source)
    for block in _resampled(_frames(source, media, stream), "stereo" if stereo else "mono"):
        heard += len(block)
        earning.reach(heard / SAMPLE_RATE)
        if heard > longest:
            raise DataFault("TOO_LARGE", f"It is longer than limits.media_minutes, {source.limits.media_minutes:g}.")
        yield block
    if container in EXACT_CONTAINERS and claimed and heard * 1000 / SAMPLE_RATE < claimed * SHORT_SHARE - 500:
        raise DataFault("TRUNCATED", f"It claims {claimed} ms; only {heard * 1000 // SAMPLE_RATE} ms are there.")


class Earning:
    """The time that a step earns by the media that it has decoded so far."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._told = 0.0

    def reach(self, seconds: float) -> None:
        held = min(seconds, self._source.size / BYTES_PER_SECOND_MIN)
        if held - self._told >= EARN_SECONDS:
            self._source.allow((held - self._told) * self._source.limits.realtime_factor)
            self._told = held


def packets(source: Source, media: Any, stream: Any) -> Iterator[Any]:
    """A track's, in the order of the file; DataFault where they come to more than the file holds."""
    left = source.size * PACKET_SHARE + PACKET_BYTES_BESIDES
    for packet in media.demux(stream):
        left -= packet.size
        if left < 0:
            raise DataFault("UNREADABLE", "Its index names the same bytes again and again, more than the file holds.")
        yield packet


def _frames(source: Source, media: Any, stream: Any) -> Iterator[Any]:
    from av.error import InvalidDataError

    stream.codec_context.thread_count = 1
    sound, damaged = 0, 0
    for packet in packets(source, media, stream):
        try:
            for frame in packet.decode():
                sound += 1
                yield frame
        except InvalidDataError:
            damaged += 1
    if damaged and damaged >= sound:
        raise DataFault("UNREADABLE", f"{damaged} damaged packets, {sound} that could be decoded.")


def _resampled(frames: Iterator[Any], layout: str) -> Iterator[Samples]:
    from av.audio.resampler import AudioResampler

    resampler, shape = None, None
    for frame in frames:
        found = (frame.format.name, frame.layout.name, frame.sample_rate)
        # Rare, but legal: a stream may change its rate or channels on the way.
        if found != shape:
            require_sound(frame.layout.nb_channels, frame.sample_rate)
            if resampler is not None:
                yield from _drained(resampler.resample(None))
            resampler, shape = AudioResampler(format="s16", layout=layout, rate=SAMPLE_RATE), found
        frame.pts = None
        yield from _drained(resampler.resample(frame))  # type: ignore[union-attr]
    if resampler is not None:
        yield from _drained(resampler.resample(None))


def _drained(frames: list[Any]) -> Iterator[Samples]:
    for frame in frames:
        samples = frame.to_ndarray().reshape(-1)
        yield samples if frame.layout.nb_channels == 1 else samples.reshape(-1, frame.layout.nb_channels)
