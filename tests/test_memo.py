"""The memo in a directory, and what only a directory can show."""

from pathlib import Path

import pytest
from behaviour_memo import *  # noqa: F403
from behaviour_memo import checksums, shelf

from headwater.settings import Settings, resolve
from headwater.storage.memo import open_memo


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return resolve(tmp_path, {}, {}, {})


def test_a_file_that_a_killed_writer_left_half_written_is_not_seen(settings: Settings, tmp_path: Path) -> None:
    (key,) = checksums(1)
    shelf(settings).put({key: {"text": "whole"}})
    (written,) = (tmp_path / "memo").rglob("*.jsonl")
    written.with_name(f"{written.name}#4711").write_bytes(b'{"checksum": "')
    assert shelf(settings).find([key]) == {key: {"text": "whole"}}
    assert [size.objects for size in open_memo(settings).sizes()] == [1]
