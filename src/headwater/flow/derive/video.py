"""Video: a recording of a screen, its facts, what was said in it and what was to be read.

Key frames are read, at most `limits.frames`, spread over the whole video, and a frame that looks like the one before
is passed over.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np

from headwater.errors import DataFault
from headwater.flow.derive.animation import together
from headwater.flow.derive.audio import heard
from headwater.flow.derive.call_times import is_elsewhere
from headwater.flow.derive.containers import container_of
from headwater.flow.derive.decoding import VIDEO_CONTAINERS, Earning, duration_of, opened, packets, sound_blocks
from headwater.flow.derive.image import require_pixels, scaled
from headwater.flow.derive.source import Source
from headwater.flow.derive.step import Effort, StepResult, probed, said_result
from headwater.flow.derive.strips import SIDE_MAX
from headwater.flow.models.loaded import Models
from headwater.flow.models.port import Picture, Said, Sound

FRAME_SECONDS: Final = 2.0
WHOLE_SECONDS: Final = 120  # up to here every frame is decoded; beyond, only those that stand alone
SPARSE_SECONDS: Final = 30  # fewer key frames than one in this time: decode everything after all
GRID: Final = (36, 64)  # cells down and across in which two frames are compared
CELL_LEVELS: Final = 4.0  # grey levels by which a changed cell differs; a codec's noise stays below
CELLS_MIN: Final = 4  # changed cells that make another frame: more than a pointer or a ticking clock


@dataclass(frozen=True, slots=True)
class KeyFrame:
    frame_ms: int
    picture: Picture
    scale: float


def probe(source: Source, models: Models) -> StepResult:
    with opened(source, container_of(source, VIDEO_CONTAINERS)) as media:
        stream = _stream(source, media)
        duration_ms = duration_of(media, None)
        source.require_length(duration_ms)
        sound = media.streams.audio[0].codec_context if media.streams.audio else None
        context = stream.codec_context
        return probed(
            duration_ms=duration_ms,
            width=context.width,
            height=context.height,
            channels=sound.channels if sound else None,
            sample_rate=sound.sample_rate if sound else None,
            codec=context.name,
        )


def transcribe(source: Source, models: Models) -> StepResult | None:
    container = container_of(source, VIDEO_CONTAINERS)
    with opened(source, container) as media:
        if not media.streams.audio:
            return None
        model = models.loaded("models.transcribe")
        stream = media.streams.audio[0]
        duration_ms = duration_of(media, stream)
        source.require_length(duration_ms)
        source.require_quick(duration_ms)
        return heard(source, model, Sound(sound_blocks(source, media, stream, container), duration_ms))


def caption(source: Source, models: Models) -> StepResult:
    model = models.loaded("models.caption")
    if is_elsewhere(model.card):
        source.require_few_calls(model.card, source.limits.frames, lambda most: _count_key_frames(source, most))
    started = time.perf_counter()
    read: list[tuple[KeyFrame, Said]] = []

    def so_far() -> StepResult:
        effort = Effort(time.perf_counter() - started, images=len(read), calls=len(read))
        return said_result(together([(frame.frame_ms, said) for frame, said in read]), model.card, effort)

    for frame in key_frames(source):
        source.allow(model.card.deadline_seconds)
        with source.call_times.timed(model.card):
            said = model.run([frame.picture])[0]
        read.append((frame, scaled(said, frame.scale)))
        source.keep(so_far)
    return so_far()


def key_frames(source: Source) -> Iterator[KeyFrame]:
    """Frames that differ, oldest first."""
    return (_key_frame(frame_ms, frame) for frame_ms, frame in _differing(source))


def _count_key_frames(source: Source, most: int) -> int:
    """Decodes what is decoded once more afterwards: little beside the calls to another machine that it may spare."""
    return sum(1 for _ in islice(_differing(source), most))


def _differing(source: Source) -> Iterator[tuple[int, Any]]:
    container = container_of(source, VIDEO_CONTAINERS)
    seconds = _seconds(source, container)
    keys_only = seconds > WHOLE_SECONDS and _key_count(source, container) > seconds / SPARSE_SECONDS
    source.require_quick(int(seconds * 1000))  # after its packets were looked at, which is quick and shows most frauds
    interval_ms = int(max(FRAME_SECONDS, seconds / source.limits.frames) * 1000)
    last: Any = None
    count, next_ms, earning = 0, 0, Earning(source)
    with opened(source, container) as media:
        for frame_ms, frame in _timed(source, media, keys_only=keys_only):
            earning.reach(frame_ms / 1000)
            if count >= source.limits.frames:
                break
            if frame_ms < next_ms:
                continue
            next_ms = frame_ms - frame_ms % interval_ms + interval_ms
            cells = _cells(frame)
            if last is not None and int((np.abs(cells - last) > CELL_LEVELS).sum()) < CELLS_MIN:
                continue
            last, count = cells, count + 1
            source.allow(FRAME_SECONDS * source.limits.realtime_factor)
            yield frame_ms, frame
    if last is None:
        raise DataFault("UNREADABLE", "No frame of it can be decoded.")


def _cells(frame: Any) -> Any:
    """The mean grey of each cell of the grid."""
    grey = frame.to_ndarray(format="gray")
    down, across = (max(1, side // cells) for side, cells in zip(grey.shape, GRID, strict=True))
    rows, columns = grey.shape[0] // down, grey.shape[1] // across
    blocks = grey[: rows * down, : columns * across].reshape(rows, down, columns, across)
    return blocks.mean(axis=(1, 3), dtype=np.float32)


def _key_frame(frame_ms: int, frame: Any) -> KeyFrame:
    factor = max(1.0, max(frame.width, frame.height) / SIDE_MAX)
    width, height = max(1, int(frame.width / factor)), max(1, int(frame.height / factor))
    picture = frame.to_ndarray(format="rgb24", width=width, height=height)
    return KeyFrame(frame_ms, picture, frame.width / width)


def _timed(source: Source, media: Any, *, keys_only: bool) -> Iterator[tuple[int, Any]]:
    from av.error import InvalidDataError

    stream = _stream(source, media)
    stream.codec_context.thread_count = 1
    stream.codec_context.skip_frame = "NONKEY" if keys_only else "DEFAULT"
    first: float | None = None
    for packet in packets(source, media, stream):
        try:
            for frame in packet.decode():
                require_pixels(frame.width, frame.height, source.limits)
                moment = frame.time or 0.0
                first = moment if first is None else first
                yield max(0, int((moment - first) * 1000)), frame
        except InvalidDataError:
            continue


def _seconds(source: Source, container: str) -> float:
    with opened(source, container) as media:
        _stream(source, media)
        duration_ms = duration_of(media, None)
        source.require_length(duration_ms)
        return (duration_ms or 0) / 1000


def _key_count(source: Source, container: str) -> int:
    with opened(source, container) as media:
        return sum(1 for packet in packets(source, media, _stream(source, media)) if packet.is_keyframe)


def _stream(source: Source, media: Any) -> Any:
    if not media.streams.video:
        raise DataFault("UNREADABLE", "It holds no pictures.")
    stream = media.streams.video[0]
    require_pixels(stream.codec_context.width, stream.codec_context.height, source.limits)
    return stream
