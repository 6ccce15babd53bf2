"""The vector index and the memo on S3."""

import pytest
from behaviour_lance_index import *  # noqa: F403
from behaviour_memo import *  # noqa: F403
from behaviour_vector_index import *  # noqa: F403

from headwater.errors import InvalidRequest
from headwater.settings import Settings, resolve
from headwater.storage.index.vector_index import open_index


@pytest.fixture
def settings(s3_settings: Settings, bucket: str) -> Settings:
    options = {name: s3_settings[name] for name in ("s3.endpoint", "s3.access_key", "s3.secret_key")}
    places = {"index.uri": f"s3a://{bucket}/lake/index", "memo.uri": f"s3://{bucket}/lake/memo"}
    return resolve(s3_settings.lake, {}, options | places, {})


def test_an_index_without_a_bucket_is_refused(settings: Settings) -> None:
    with pytest.raises(InvalidRequest, match=r"index\.uri"):
        open_index(resolve(settings.lake, {}, {"index.uri": "s3://"}, {}))
