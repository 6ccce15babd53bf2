"""Checkpoints of the log's stream do not pile up: one a lake, with the notes of the last few batches."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.errors import InvalidRequest
from headwater.settings import Settings, resolve
from headwater.storage.log.checkpoint import fresh_checkpoint

BATCHES = 25


def of(directory: Path, lake: str) -> Settings:
    return resolve(directory / lake, {"checkpoints": {"uri": f"{directory}/shared"}}, {}, {})


def begin(spark: SparkSession, settings: Settings) -> Path:
    """As a stream would that ends at once."""
    place = Path(fresh_checkpoint(spark, settings).removeprefix("file://"))
    assert not place.exists()
    (place / "offsets").mkdir(parents=True)
    (place / "offsets" / "0").write_text("v1")
    return place


def test_each_start_removes_what_the_lakes_earlier_ones_left_and_nothing_of_other_lakes(
    spark: SparkSession, tmp_path: Path
) -> None:
    theirs = begin(spark, of(tmp_path, "theirs"))
    for left in ("bronze/offsets", "bronze/0123456789abcdef0123456789abcdef/commits"):  # as older versions did
        (tmp_path / "shared" / left).mkdir(parents=True)
    places = [begin(spark, of(tmp_path, "ours")) for _ in range(4)]
    assert len(set(places)) == 4
    assert sorted((tmp_path / "shared" / "bronze").iterdir()) == sorted([theirs, places[-1]])
    assert (theirs / "offsets" / "0").exists()


def test_a_place_that_spark_cannot_write_to_is_told_with_the_way_out(spark: SparkSession, tmp_path: Path) -> None:
    settings = resolve(tmp_path, {"checkpoints": {"uri": "s3://bucket/checkpoints"}}, {}, {})
    with pytest.raises(InvalidRequest, match=r"checkpoints\.uri is s3://bucket/checkpoints.*Leave the setting out"):
        fresh_checkpoint(spark, settings)


def test_a_checkpoint_holds_the_notes_of_a_few_batches_however_long_the_stream_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "lines").mkdir()
    for number in range(BATCHES):
        (tmp_path / "lines" / f"{number}.txt").write_text("line")
    place, seen = fresh_checkpoint(spark, of(tmp_path, "lake")), []
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "lines"))
    query = lines.writeStream.option("checkpointLocation", place).foreachBatch(lambda _, batch: seen.append(batch))
    query.trigger(availableNow=True).start().awaitTermination(120)
    assert len(seen) == BATCHES
    for notes in ("offsets", "commits"):
        kept = [note for note in Path(place.removeprefix("file://"), notes).iterdir() if note.name.isdigit()]
        assert 0 < len(kept) <= 12
