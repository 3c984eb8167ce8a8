"""A query on a Spark cluster, held up in the middle until a file comes into being.

Arguments: the master, bootstrap servers, a topic, a folder for the files. Prints JSON.
"""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

master, bootstrap, topic, folder = sys.argv[1:]
spark = (
    SparkSession.builder.master(master)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.executor.memory", "512m")
    .getOrCreate()
)


@F.udf("string", useArrow=False)
def hold_up(partition: int, _value: bytes) -> str:
    import os
    import time
    from importlib.util import find_spec

    if not os.path.exists(f"{folder}/open"):
        open(f"{folder}/reached-{partition}", "a").close()
    while not os.path.exists(f"{folder}/open"):
        time.sleep(0.05)
    package = find_spec("quorate")
    return f"{os.getcwd()} {package and package.origin}"


records = (
    spark.read.format("quorate")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", topic)
    .load()
)
by_partition = (
    records.withColumn("where", hold_up("partition", "value"))
    .groupBy("partition")
    .agg(
        F.count("*"),
        F.count_distinct("offset"),
        F.max("offset"),
        F.sum(F.crc32("value")),
        F.collect_set("where"),
    )
)
rows = by_partition.orderBy("partition").collect()
print(json.dumps([list(row) for row in rows]))
spark.stop()
