"""Spark's start for a lake on servers: its longer class path is served by the archive that set-up made."""

import os
import subprocess
from pathlib import Path

from headwater.storage.io.java import check_java
from headwater.storage.spark.class_archive import prepare_spark
from headwater.storage.spark.jars import EMBEDDED, KAFKA, POSTGRES, S3, resolve_jars
from headwater.storage.spark.jvm import archive_file, class_path


def test_a_lake_on_servers_starts_with_the_classes_of_the_embedded_lakes_archive(tmp_path: Path) -> None:
    java, jars = check_java(), resolve_jars((*EMBEDDED, *KAFKA, *POSTGRES, *S3))
    archive = prepare_spark()
    assert archive_file(java, jars) == archive
    loaded = tmp_path / "loaded"
    options = [f"-XX:SharedArchiveFile={archive}", "-XX:+UseSerialGC", f"-Xlog:class+load:file={loaded}"]
    classes = os.pathsep.join(map(str, class_path(jars)))
    submit = ["org.apache.spark.deploy.SparkSubmit", "--version"]
    subprocess.run([str(java.executable), *options, "-cp", classes, *submit], check=True, capture_output=True)
    sources = loaded.read_text().splitlines()
    ready = sum("shared objects file (top)" in line for line in sources)
    fresh = sum("source: file:" in line for line in sources)
    assert ready > 100
    assert fresh < ready / 10
