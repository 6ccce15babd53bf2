"""The vector index in a directory: what every one promises, and what LanceDB's does beyond that."""

from pathlib import Path

import pytest
from behaviour_lance_index import *  # noqa: F403
from behaviour_vector_index import *  # noqa: F403
from behaviour_vector_index import embeddings

from headwater import settings as settings_module
from headwater.settings import Settings
from headwater.storage.index.vector_index import VectorIndex, open_index


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_module.resolve(tmp_path / "lake", {}, {}, {})


def test_a_note_without_entries_is_not_believed(index: VectorIndex, settings: Settings) -> None:
    index.upsert(embeddings(3))
    index.set_position(3)
    next(settings.lake.glob("index/text_*")).rename(settings.lake / "elsewhere")
    assert open_index(settings).position() == 0
