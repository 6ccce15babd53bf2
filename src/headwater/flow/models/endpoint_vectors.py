"""Vectors of texts by an endpoint: `POST url/embeddings`, many texts in one request."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Final

from headwater.errors import DataFault
from headwater.flow.models.endpoint import EndpointModel
from headwater.flow.models.port import Accepts, Embedded, Produces, Vector
from headwater.flow.models.request_estimate import RequestEstimate, count_tokens
from headwater.flow.models.vectors import unit

TOKENS_BESIDES: Final = 16
ANSWER_BYTES, NUMBER_BYTES = 1 << 20, 64  # a number is written in some twenty


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

    def run(self, batch: Sequence[str]) -> list[Embedded | DataFault]:
        starts = range(0, len(batch), self.batch_items)
        found = [one for start in starts for one in self._embed(batch[start : start + self.batch_items])]
        faults = [one for one in found if isinstance(one, DataFault)]
        if faults and len(faults) == len(found):
            raise faults[0]
        return found

    def _embed(self, texts: Sequence[str]) -> Iterator[Embedded | DataFault]:
        body: dict[str, Any] = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        if self.shorten:
            body["dimensions"] = self.dimension
        identity = json.dumps(list(texts), ensure_ascii=True).encode()
        answer = self.endpoint.post("/embeddings", identity, lambda: {"json": body}, self._asked(texts))
        vectors = read_vectors(answer.content, len(texts), self.dimension, self.card.name)
        shares = share_out(count_tokens(answer.content), [len(text) for text in texts])
        for vector, tokens in zip(vectors, shares, strict=True):
            yield vector if isinstance(vector, DataFault) else Embedded(vector, tokens, answer.attempts)

    def _asked(self, texts: Sequence[str]) -> RequestEstimate:
        """No tokeniser makes more tokens than a text has bytes, but for the few that frame it."""
        tokens = sum(len(text.encode()) + TOKENS_BESIDES for text in texts)
        return RequestEstimate(ANSWER_BYTES + len(texts) * self.dimension * NUMBER_BYTES, tokens_most=tokens)


def read_vectors(content: Mapping[str, Any], count: int, dimension: int, name: str) -> list[Vector | DataFault]:
    """In the order of the texts, each as it is: one that cannot be used costs the others nothing.

    Raises DataFault BAD_OUTPUT where one is missing or doubled: then nobody knows which is whose.
    """
    data = content.get("data")
    if not isinstance(data, list) or len(data) != count:
        found = len(data) if isinstance(data, list) else "no"
        raise DataFault("BAD_OUTPUT", f"{name} answered with {found} vectors for {count} texts.")
    placed: dict[int, Vector | DataFault] = {}
    for place, item in enumerate(data):
        fields = item if isinstance(item, dict) else {}
        index = fields.get("index", place)
        try:
            placed[index if isinstance(index, int) else -1] = unit(fields.get("embedding"), dimension, name)
        except DataFault as fault:
            placed[index if isinstance(index, int) else -1] = fault
    if set(placed) != set(range(count)):
        raise DataFault("BAD_OUTPUT", f"{name} answered with vectors that are not numbered from 0 to {count - 1}.")
    return [placed[index] for index in range(count)]


def share_out(total: int, weights: Sequence[int]) -> list[int]:
    """`total` in whole parts by weight, nothing lost: what a batch cost, told for each of its texts."""
    whole = sum(weights) or 1
    ends = [total * weight // whole for weight in accumulate(weights)]
    return [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
