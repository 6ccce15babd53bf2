"""The flow inside somebody's own Spark, where the log is Kafka and all else is on servers: its stream, too."""

import json
from pathlib import Path

from printed_recipe import run_script

import headwater
from headwater.settings import FILE_NAME, SETTINGS, Settings
from headwater.stack.lake_file import settings_text

INSIDE = """
import json, sys
import headwater
from pyspark.sql import SparkSession
lake = headwater.open(sys.argv[1])
conf = lake.upkeep.connect("spark").conf
spark = SparkSession.builder.config("spark.jars.packages", conf["spark.jars.packages"]).getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
before = dict(spark.conf.getAll)
done = lake.run(spark=spark).done
assert dict(spark.conf.getAll) == before and spark.sparkContext.getLocalProperty("spark.scheduler.pool") == "mine"
assert not spark.streams.active and spark.range(3).count() == 3
print(json.dumps([done["bronze"], len(lake.search("router").hits)]))
"""


def test_a_stream_of_kafka_is_read_inside_a_session_that_somebody_made(stack_lake: Settings, tmp_path: Path) -> None:
    chosen = {each.name: stack_lake.text(each.name) for each in SETTINGS if not stack_lake.is_default(each.name)}
    (stack_lake.lake / FILE_NAME).write_text(settings_text(chosen))
    with headwater.init(stack_lake.lake) as lake:
        lake.put_rows([{"id": f"m{number}", "customer": "acme", "text": f"router {number}"} for number in range(30)])
        lake.put_text("a long tale of a router " * 1_000, customer="acme", id="long")
        said = run_script(INSIDE, tmp_path, lake.settings.lake)
        assert json.loads(said.splitlines()[-1]) == [31, 10]
        assert lake.sql("SELECT count(DISTINCT text) AS texts FROM messages")["rows"] == [{"texts": 31}]
