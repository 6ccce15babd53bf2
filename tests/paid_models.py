"""Models whose answers cost something, each as much as any other: it is remembered before it is written."""

from dataclasses import replace

from cheap_models import CheapEmbedder


class PaidEmbedder(CheapEmbedder):
    def __init__(self, version: str = "1", calls: str = "") -> None:
        super().__init__(version, calls)
        self.card = replace(self.card, price=0.001, batch_items=1)
