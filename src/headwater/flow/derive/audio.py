"""Audio: a call, its facts and what was said in it."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from headwater.errors import DataFault
from headwater.flow.derive.containers import container_of, require_sound, wav_header
from headwater.flow.derive.decoding import AUDIO_CONTAINERS, duration_of, opened, sound_blocks
from headwater.flow.derive.source import Source
from headwater.flow.derive.step import Effort, StepResult, probed, said_result
from headwater.flow.models.loaded import Models
from headwater.flow.models.port import SAMPLE_RATE, Model, Samples, Sound


def probe(source: Source, models: Models) -> StepResult:
    container = container_of(source, AUDIO_CONTAINERS)
    if container == "wav":  # our own reading of the header is a hundred times as fast as a demuxer's
        header = wav_header(source)
        source.require_length(header.duration_ms)
        return probed(**asdict(header))
    with opened(source, container) as media:
        stream = _sound_track(media)
        duration_ms = duration_of(media, stream)
        source.require_length(duration_ms)
        context = stream.codec_context
        require_sound(context.channels, context.sample_rate)
        return probed(
            duration_ms=duration_ms, channels=context.channels, sample_rate=context.sample_rate, codec=context.name
        )


def transcribe(source: Source, models: Models) -> StepResult:
    model = models.loaded("models.transcribe")
    container = container_of(source, AUDIO_CONTAINERS)
    with opened(source, container) as media:
        stream = _sound_track(media)
        duration_ms = duration_of(media, stream)
        source.require_length(duration_ms)
        source.require_quick(duration_ms)
        return heard(source, model, Sound(sound_blocks(source, media, stream, container), duration_ms))


def heard(source: Source, model: Model, sound: Sound) -> StepResult:
    """What a speech model makes of a sound, paid by the seconds of sound that it was given."""
    source.allow(model.card.deadline_seconds)
    samples = 0

    def counted() -> Iterator[Samples]:
        nonlocal samples
        for block in sound.blocks:
            samples += len(block)
            yield block

    started = time.perf_counter()
    said = model.run([Sound(counted(), sound.duration_ms)])[0]
    seconds = max(samples / SAMPLE_RATE, (sound.duration_ms or 0) / 1000)
    return said_result(said, model.card, Effort(time.perf_counter() - started, audio_seconds=seconds))


def _sound_track(media: Any) -> Any:
    if not media.streams.audio:
        raise DataFault("UNREADABLE", "It holds no sound track.")
    return media.streams.audio[0]
