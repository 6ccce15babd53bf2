"""Audio: a call, its facts and what was said in it."""

import time
from typing import Final

from headwater.domain.tables import METADATA, TRANSCRIPTS
from headwater.errors import DataFault
from headwater.flow.derive.containers import container_of
from headwater.flow.derive.decoding import AUDIO_CONTAINERS, duration_of, opened, sound_blocks
from headwater.flow.derive.source import Source
from headwater.flow.derive.step import Models, Step, StepResult, probed, said_result
from headwater.flow.models.port import Sound


def probe(source: Source, models: Models) -> StepResult:
    with opened(source, container_of(source, AUDIO_CONTAINERS)) as media:
        if not media.streams.audio:
            raise DataFault("UNREADABLE", "It holds no sound track.")
        stream = media.streams.audio[0]
        duration_ms = duration_of(media, stream)
        source.allow_media(duration_ms)
        context = stream.codec_context
        if not context.channels or not context.sample_rate:
            raise DataFault("UNREADABLE", f"It claims {context.channels} channels at {context.sample_rate} Hz.")
        return probed(
            duration_ms=duration_ms, channels=context.channels, sample_rate=context.sample_rate, codec=context.name
        )


def transcribe(source: Source, models: Models) -> StepResult:
    model = models.loaded("models.transcribe")
    container = container_of(source, AUDIO_CONTAINERS)
    with opened(source, container) as media:
        if not media.streams.audio:
            raise DataFault("UNREADABLE", "It holds no sound track.")
        stream = media.streams.audio[0]
        duration_ms = duration_of(media, stream)
        source.allow_media(duration_ms)
        started = time.perf_counter()
        said = model.run([Sound(sound_blocks(source, media, stream, container), duration_ms)])[0]
        return said_result(said, time.perf_counter() - started)


STEPS: Final = (
    Step("probe", METADATA, probe),
    Step("transcribe", TRANSCRIPTS, transcribe, "models.transcribe"),
)
