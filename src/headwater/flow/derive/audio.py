"""Audio: a call, its facts and what was said in it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, Final

from headwater.errors import DataFault
from headwater.flow.derive.channels import one_side, sides_of
from headwater.flow.derive.containers import container_of, require_sound, wav_header
from headwater.flow.derive.decoding import AUDIO_CONTAINERS, duration_of, opened, sound_blocks
from headwater.flow.derive.source import Source
from headwater.flow.derive.speakers import together
from headwater.flow.derive.step import Effort, StepResult, probed, said_result
from headwater.flow.models.loaded import Models
from headwater.flow.models.port import SAMPLE_RATE, Model, Said, Samples, Sound
from headwater.flow.models.spending import note_paid, require_money

SIDES: Final = 2  # with more channels it is no call but a room or a film


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
    """A call of two sides is heard side by side, each by itself; every other sound as one."""
    model = models.loaded("models.transcribe")
    container = container_of(source, AUDIO_CONTAINERS)
    with opened(source, container) as media:
        stream = _sound_track(media)
        duration_ms = duration_of(media, stream)
        source.require_length(duration_ms)
        source.require_quick(duration_ms)
        if stream.codec_context.channels != SIDES:
            return heard(source, model, Sound(sound_blocks(source, media, stream, container), duration_ms))
    with _stereo(source, container) as blocks:
        sides = sides_of(blocks)
    if sides:
        source.require_quick((duration_ms or 0) * len(sides))
        return _heard_by_side(source, model, container, duration_ms, sides)
    with opened(source, container) as media:
        return heard(source, model, Sound(sound_blocks(source, media, _sound_track(media), container), duration_ms))


def heard(source: Source, model: Model, sound: Sound) -> StepResult:
    """What a speech model makes of a sound, paid by the seconds of sound that it was given."""
    said, effort = _asked(source, model, sound)
    return said_result(said, model.card, effort)


def _heard_by_side(
    source: Source, model: Model, container: str, duration_ms: int | None, sides: Sequence[int]
) -> StepResult:
    """Each side is paid like a call of its own. Where the money does not reach for all, none is begun."""
    require_money(model.card.cost(seconds=(duration_ms or 0) / 1000 * len(sides), calls=len(sides)))
    answers: dict[int, Said] = {}
    whole = Effort(0.0, calls=0)
    for side in sides:
        with _stereo(source, container) as blocks:
            answers[side], effort = _asked(
                source, model, Sound(one_side(blocks, side), duration_ms, is_whole=len(sides) < SIDES)
            )
        if len(sides) > 1 and not getattr(model, "tells_waiting", False):
            note_paid(model.card.cost(seconds=effort.audio_seconds, tokens=answers[side].tokens))
        whole = whole.plus(effort)
    return said_result(together(answers), model.card, whole)


def _asked(source: Source, model: Model, sound: Sound) -> tuple[Said, Effort]:
    source.allow(model.card.deadline_seconds)
    samples = 0

    def counted() -> Iterator[Samples]:
        nonlocal samples
        for block in sound.blocks:
            samples += len(block)
            yield block

    started = time.perf_counter()
    said = model.run([replace(sound, blocks=counted())])[0]
    seconds = max(samples / SAMPLE_RATE, (sound.duration_ms or 0) / 1000)
    return said, Effort(time.perf_counter() - started, audio_seconds=seconds)


@contextmanager
def _stereo(source: Source, container: str) -> Iterator[Iterator[Samples]]:
    """From its beginning; decoding it again costs little beside hearing it, and a call of hours is never in memory."""
    with opened(source, container) as media:
        yield sound_blocks(source, media, _sound_track(media), container, stereo=True)


def _sound_track(media: Any) -> Any:
    if not media.streams.audio:
        raise DataFault("UNREADABLE", "It holds no sound track.")
    return media.streams.audio[0]
