"""The steps of each modality: one line each."""

from typing import Final

from headwater.domain.modality import Modality
from headwater.flow.derive import audio, chat, document, image, video
from headwater.flow.derive.step import Step

STEPS: Final[dict[Modality, tuple[Step, ...]]] = {
    Modality.AUDIO: audio.STEPS,
    Modality.IMAGE: image.STEPS,
    Modality.VIDEO: video.STEPS,
    Modality.DOCUMENT: document.STEPS,
    Modality.CHAT: chat.STEPS,
}
