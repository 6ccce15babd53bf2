"""Vectors of texts by an endpoint: `POST url/embeddings`, many texts in one request."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

from headwater.errors import DataFault
from headwater.flow.models.endpoint import EndpointModel, count_tokens
from headwater.flow.models.port import Accepts, Embedded, Produces, Vector
from headwater.flow.models.vectors import unit


@dataclass(kw_only=True)
class OpenAiEmbeddings(EndpointModel):
    """The `Model` for `embed`. `dimension` is what the model gives; with `shorten` the service is asked for it.

    Vectors come back at unit length, whatever the service does.
    """

    kind: ClassVar[str] = "openai-embeddings"
    accepts: ClassVar[Accepts] = "text"
    produces: ClassVar[Produces] = "vector"

    dimension: int
    shorten: bool = False
    price_unit: str = "1k_tokens"
    batch_items: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_number("dimension", above=0)
        self._check_number("batch_items", above=0)

    def answering(self) -> dict[str, Any]:
        return {"dimension": self.dimension, "shorten": self.shorten}

    def most_items(self) -> int:
        return self.batch_items

    def run(self, batch: Sequence[str]) -> list[Embedded]:
        starts = range(0, len(batch), self.batch_items)
        return [found for start in starts for found in self._embed(batch[start : start + self.batch_items])]

    def _embed(self, texts: Sequence[str]) -> Iterator[Embedded]:
        body: dict[str, Any] = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        if self.shorten:
            body["dimensions"] = self.dimension
        asked = json.dumps(list(texts), ensure_ascii=True).encode()
        answer = self.endpoint.post("/embeddings", asked, lambda: {"json": body})
        vectors = read_vectors(answer.content, len(texts), self.dimension, self.card.name)
        shares = share_out(count_tokens(answer.content), [len(text) for text in texts])
        for vector, tokens in zip(vectors, shares, strict=True):
            yield Embedded(vector, tokens, answer.attempts)


def read_vectors(content: Mapping[str, Any], count: int, dimension: int, name: str) -> list[Vector]:
    """In the order of the texts. Raises DataFault BAD_OUTPUT where one is missing, doubled or unusable."""
    data = content.get("data")
    if not isinstance(data, list) or len(data) != count:
        found = len(data) if isinstance(data, list) else "no"
        raise DataFault("BAD_OUTPUT", f"{name} answered with {found} vectors for {count} texts.")
    placed: dict[int, Vector] = {}
    for place, item in enumerate(data):
        told = item if isinstance(item, dict) else {}
        index = told.get("index", place)
        placed[index if isinstance(index, int) else -1] = unit(told.get("embedding"), dimension, name)
    if set(placed) != set(range(count)):
        raise DataFault("BAD_OUTPUT", f"{name} answered with vectors that are not numbered from 0 to {count - 1}.")
    return [placed[index] for index in range(count)]


def share_out(total: int, weights: Sequence[int]) -> list[int]:
    """`total` in whole parts by weight, nothing lost: what a batch cost, told for each of its texts."""
    whole = sum(weights) or 1
    ends = [total * weight // whole for weight in accumulate(weights)]
    return [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
