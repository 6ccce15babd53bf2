"""What one request asks an endpoint for: as far as it is paid, and how much its answer may hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.flow.models.answers import TOKENS_MAX
from headwater.flow.models.port import ModelCard


@dataclass(frozen=True, slots=True)
class RequestEstimate:
    """`tokens_most` is more than a service can bill, or None where nobody knows; `tokens_guess` is counted where a
    service does not tell what it has billed.
    """

    bytes_most: int
    seconds: float = 0.0
    images: int = 0
    tokens_most: int | None = None
    tokens_guess: int = 0

    def cost(self, card: ModelCard, tokens: int) -> float:
        return card.cost(seconds=self.seconds, images=self.images, tokens=tokens)

    def cost_most(self, card: ModelCard) -> float | None:
        """None where it is paid by the token, and nobody knows how many there will be."""
        if card.price_unit == "1k_tokens" and self.tokens_most is None:
            return None if card.price else 0.0
        return self.cost(card, self.tokens_most or 0)

    def cost_of(self, card: ModelCard, content: Mapping[str, Any]) -> float:
        """What nobody can have billed is counted as if nothing was said."""
        billed = count_tokens(content)
        return self.cost(card, (billed if billed <= TOKENS_MAX else 0) or self.tokens_most or self.tokens_guess)


def count_tokens(content: Mapping[str, Any]) -> int:
    """What the service says that it billed; nothing where it does not say."""
    usage = content.get("usage")
    found = usage.get("total_tokens") if isinstance(usage, dict) else None
    return found if isinstance(found, int) and found > 0 else 0
