"""Vectors of texts by fastembed: small ONNX models on this machine.

Nothing is downloaded here: weights are fetched once by hand, into a directory or fastembed's cache. Texts go through
one by one: in a batch, padding and quantisation would let a text's neighbours change its vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from headwater.errors import DataFault, InvalidRequest, Unavailable
from headwater.flow.models.extras import not_installed, version_of, weights_digest
from headwater.flow.models.port import ModelCard, Vector
from headwater.flow.models.vectors import unit

EXTRA: Final = "fastembed"
# What fastembed's own list says, for the models most used: a card is read without importing it.
DIMENSIONS: Final = {
    "BAAI/bge-small-en-v1.5": 384,
    "BAAI/bge-base-en-v1.5": 768,
    "BAAI/bge-large-en-v1.5": 1024,
    "sentence-transformers/all-MiniLM-L6-v2": 384,
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": 384,
    "intfloat/multilingual-e5-large": 1024,
    "Qdrant/clip-ViT-B-32-text": 512,
    "Qdrant/clip-ViT-B-32-vision": 512,
    "google/siglip2-base-patch16-224": 768,
    "jinaai/jina-clip-v1": 768,
}
POOLINGS: Final = ("mean", "cls", "last_token", "disabled")


@dataclass(kw_only=True)
class FastEmbed:
    """The `Model` for `embed`. `path` is a directory with the model's files, by its absolute path.

    `pooling` and `model_file` are for a model that fastembed does not list.
    """

    model: str = "BAAI/bge-small-en-v1.5"
    path: str = ""
    cache_dir: str = ""
    dimension: int = 0
    pooling: str = "mean"
    model_file: str = "model.onnx"
    threads: int = 1
    _embedding: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.dimension = chosen_dimension(self.dimension, self.model)
        check_directory("path", self.path)
        if self.pooling not in POOLINGS:
            raise InvalidRequest(f"pooling must be one of {', '.join(POOLINGS)}, found {self.pooling!r}.")

    @cached_property
    def card(self) -> ModelCard:
        return ModelCard(
            name=f"fastembed/{self.model}",
            version=version_of("fastembed", EXTRA),
            accepts="text",
            produces="vector",
            parameters={"model": self.model, "dimension": self.dimension, "pooling": self.pooling},
            batch_items=64,
            weights_digest=weights_digest(Path(self.path)) if self.path else self.model,
        )

    def load(self) -> None:
        try:
            from fastembed import TextEmbedding
        except ImportError as error:
            raise not_installed(EXTRA, error) from error
        listed = {known["model"].lower() for known in TextEmbedding.list_supported_models()}
        name = self.model if self.model.lower() in listed else self._register(listed)
        self._embedding = open_tower(TextEmbedding, name, self.path, self.cache_dir, self.threads)
        check_dimension(self.run, "dimension", self.dimension)

    def _register(self, listed: set[str]) -> str:
        """A model that fastembed does not list becomes one that it does, in this process."""
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        # The list is one for the whole process; the same model read in two ways must not meet there.
        name = f"{self.model}#{self.card.fingerprint}"
        if name.lower() not in listed:
            TextEmbedding.add_custom_model(
                model=name,
                pooling=PoolingType[self.pooling.upper()],
                normalization=True,
                sources=ModelSource(hf=self.model),
                dim=self.dimension,
                model_file=self.model_file,
            )
        return name

    def run(self, batch: Sequence[str]) -> list[Vector]:
        vectors = self._embedding.embed(list(batch), batch_size=1)
        return [unit(vector, self.dimension, self.card.name) for vector in vectors]


def chosen_dimension(chosen: int, *models: str) -> int:
    known = [DIMENSIONS[model] for model in models if model in DIMENSIONS]
    if not chosen and not known:
        raise InvalidRequest(f"dimension must be told for {models[0]}: the length of its vectors.")
    return chosen or known[0]


def check_directory(name: str, path: str) -> None:
    if path and not Path(path).is_absolute():
        raise InvalidRequest(f"{name} must be absolute, found {path!r}: workers stand in other directories.")


def open_tower(kind: Any, model: str, path: str, cache_dir: str, threads: int) -> Any:
    """A model of fastembed, from this machine only. Raises Unavailable with the way out."""
    from loguru import logger

    logger.disable("fastembed")  # what it has to say comes in the error
    try:
        return kind(
            model_name=model,
            cache_dir=cache_dir or None,
            threads=threads,
            providers=["CPUExecutionProvider"],
            local_files_only=True,
            specific_model_path=path or None,
        )
    except Exception as error:  # onnxruntime has a class of its own for everything
        reason = f"{error}".partition("\n")[0] or type(error).__name__
        raise Unavailable(
            f"{path or model} cannot be loaded from this machine: {reason.rstrip('.')}. Fetch it once where there is a "
            "network (hf download), and name its directory in the model's section."
        ) from error


def check_dimension(run: Any, name: str, dimension: int) -> None:
    """One try at loading, so that a wrong number is said once and not for every object."""
    try:
        run(["dimension"])
    except DataFault as fault:
        raise InvalidRequest(f"{name} = {dimension} does not fit the model: {fault.detail}") from fault
