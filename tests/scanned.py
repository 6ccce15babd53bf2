"""How many rows Spark has read from a table so far, as its own books tell it; what a cache gives is not counted."""

from pyspark.sql import SparkSession

_WAIT_MS = 30_000


def rows_scanned(spark: SparkSession, table: str) -> int:
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_WAIT_MS)
    store = spark._jsparkSession.sharedState().statusStore()
    total = 0
    executions = store.executionsList()
    for place in range(executions.size()):
        number = executions.apply(place).executionId()
        nodes, values = store.planGraph(number).allNodes(), store.executionMetrics(number)
        for one in range(nodes.size()):
            node = nodes.apply(one)
            if f"lake.{table}" not in node.name():
                continue
            metrics = node.metrics()
            for which in range(metrics.size()):
                metric = metrics.apply(which)
                if metric.name() == "number of output rows" and values.contains(metric.accumulatorId()):
                    total += int(str(values.apply(metric.accumulatorId())).replace(",", ""))
    return total
