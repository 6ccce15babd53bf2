"""Pictures and texts in one space by fastembed: a CLIP's two towers, so that a text finds a picture."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from headwater.flow.models.extras import not_installed, version_of, weights_digest
from headwater.flow.models.fastembed_text import EXTRA, check_dimension, check_directory, chosen_dimension, open_tower
from headwater.flow.models.port import ModelCard, Picture, Vector
from headwater.flow.models.vectors import unit


@dataclass(kw_only=True)
class FastEmbedClip:
    """A `Model` that gives a vector for a picture and, in the same space, for a text.

    The two towers must have been trained together; their directories are named by absolute paths.
    """

    vision_model: str = "Qdrant/clip-ViT-B-32-vision"
    text_model: str = "Qdrant/clip-ViT-B-32-text"
    vision_path: str = ""
    text_path: str = ""
    cache_dir: str = ""
    dimension: int = 0
    threads: int = 1
    _vision: Any = field(default=None, init=False, repr=False)
    _text: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.dimension = chosen_dimension(self.dimension, self.vision_model, self.text_model)
        check_directory("vision_path", self.vision_path)
        check_directory("text_path", self.text_path)

    @cached_property
    def card(self) -> ModelCard:
        towers = ((self.vision_model, self.vision_path), (self.text_model, self.text_path))
        digests = [weights_digest(Path(path)) if path else model for model, path in towers]
        return ModelCard(
            name=f"fastembed-clip/{self.vision_model}",
            version=version_of("fastembed", EXTRA),
            accepts="picture",
            produces="vector",
            parameters={"vision": self.vision_model, "text": self.text_model, "dimension": self.dimension},
            batch_items=16,
            weights_digest=" ".join(digests),
        )

    def load(self) -> None:
        try:
            from fastembed import ImageEmbedding, TextEmbedding
        except ImportError as error:
            raise not_installed(EXTRA, error) from error
        self._vision = open_tower(ImageEmbedding, self.vision_model, self.vision_path, self.cache_dir, self.threads)
        self._text = open_tower(TextEmbedding, self.text_model, self.text_path, self.cache_dir, self.threads)
        check_dimension(self.run, "dimension", self.dimension)
        check_dimension(lambda _: self.run([np.full((8, 8, 3), 127, np.uint8)]), "dimension", self.dimension)

    def run(self, batch: Sequence[Picture | str]) -> list[Vector]:
        return [unit(self._embed(each), self.dimension, self.card.name) for each in batch]

    def _embed(self, each: Picture | str) -> Any:
        from PIL import Image

        if isinstance(each, str):
            return next(iter(self._text.embed([each], batch_size=1)))
        return next(iter(self._vision.embed([Image.fromarray(each)], batch_size=1)))
