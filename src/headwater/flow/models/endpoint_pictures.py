"""Captions of pictures by a vision model behind an endpoint: `POST url/chat/completions` with the picture in it."""

import base64
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from headwater.domain.locator import Segment
from headwater.errors import DataFault
from headwater.flow.models.endpoint import EndpointModel
from headwater.flow.models.language import tell_language
from headwater.flow.models.port import Accepts, Picture, Produces, Said
from headwater.flow.models.request_estimate import RequestEstimate, count_tokens

PROMPT: Final = (
    "Describe this picture in one sentence. Then write down all text in it, line by line, as it stands there."
)
CHARACTERS_MAX: Final = 50_000  # a page of small print has ten thousand
JPEG_QUALITY: Final = 90
FINISHES: Final = ("stop", "length", "content_filter", "tool_calls")  # whatever else it says is not repeated
ANSWER_BYTES: Final = 8 << 20
TOKENS_GUESS: Final = 2_000  # where a service does not tell: of a picture, and of what is to be read in it


@dataclass(kw_only=True)
class OpenAiCaption(EndpointModel):
    """The `Model` for `caption`. A picture goes out at most `side_pixels` wide and high, as PNG or JPEG."""

    kind: ClassVar[str] = "openai-caption"
    accepts: ClassVar[Accepts] = "picture"
    produces: ClassVar[Produces] = "text"

    price_unit: str = "image"
    timeout_seconds: float = 120.0
    deadline_seconds: float = 600.0
    prompt: str = PROMPT
    side_pixels: int = 1536
    encoding: str = "png"
    max_tokens: int = 0
    temperature: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_number("side_pixels", above=0)
        if self.encoding not in {"png", "jpeg"}:
            self._refuse_option("encoding", "png or jpeg")

    def answering(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "side_pixels": self.side_pixels,
            "encoding": self.encoding,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
        }

    def run(self, batch: Sequence[Picture]) -> list[Said]:
        return [self._see(picture) for picture in batch]

    def _see(self, picture: Picture) -> Said:
        # The pixels, not the file: another version of the encoder must not make another request of it.
        asked = hashlib.sha256(f"{picture.shape}".encode() + picture.tobytes()).digest()
        body = self._body(picture)
        paid = RequestEstimate(ANSWER_BYTES, images=1, tokens_guess=TOKENS_GUESS + len(self.prompt.encode()))
        answer = self.endpoint.post("/chat/completions", asked, lambda: {"json": body}, paid)
        text = read_caption(answer.content, self.card.name)
        tokens = count_tokens(answer.content)
        return Said(text, tell_language(text), None, (Segment(text),), tokens=tokens, attempts=answer.attempts)

    def _body(self, picture: Picture) -> dict[str, Any]:
        image = {"url": data_url(picture, self.side_pixels, self.encoding)}
        content = [{"type": "text", "text": self.prompt}, {"type": "image_url", "image_url": image}]
        body: dict[str, Any] = {"model": self.model, "messages": [{"role": "user", "content": content}]}
        if self.max_tokens:
            body["max_tokens"] = self.max_tokens
        if self.temperature is not None:
            body["temperature"] = self.temperature
        return body


def data_url(picture: Picture, side_pixels: int, encoding: str) -> str:
    """The picture as text that can stand in JSON."""
    from PIL import Image

    image = Image.fromarray(picture)
    image.thumbnail((side_pixels, side_pixels))
    file = io.BytesIO()
    options: Mapping[str, Any] = {"quality": JPEG_QUALITY} if encoding == "jpeg" else {}
    image.save(file, format=encoding.upper(), **options)
    return f"data:image/{encoding};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def read_caption(content: Mapping[str, Any], name: str) -> str:
    """Raises DataFault BAD_OUTPUT where there is no text, or only a part of it."""
    try:
        choice = content["choices"][0]
        text, finish = choice["message"]["content"], choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise DataFault("BAD_OUTPUT", f"{name} answered without choices[0].message.content.") from error
    finish = finish if finish in FINISHES else "for a reason of its own"
    if not isinstance(text, str) or not text.strip():
        raise DataFault("BAD_OUTPUT", f"{name} answered without text ({finish}).")
    if finish in {"length", "content_filter"}:
        raise DataFault("BAD_OUTPUT", f"{name} did not finish its text ({finish}): raise max_tokens or change prompt.")
    if len(text) > CHARACTERS_MAX:
        raise DataFault("BAD_OUTPUT", f"{name} answered with {len(text)} characters, more than a picture holds.")
    return text.strip()
