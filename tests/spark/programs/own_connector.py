"""``own_connector.py BOOTSTRAP JARS FOLDER``: Spark's own Kafka connector at a cluster of Quorate.

It writes a batch to the topic ``t``, reads it back, and streams it to the topic ``out``. It prints
what it has found, as JSON.
"""

import json
import os
import sys

from pyspark.sql import DataFrame, SparkSession

from quorate.spark.java_home import use_java

ROWS = 1_000


def main(bootstrap: str, jars: str, folder: str) -> None:
    use_java()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    text = "cast(id as string)"
    rows = session.range(ROWS).selectExpr(f"{text} key", f"cast({text} as binary) value")
    rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option(
        "topic", "t"
    ).save()

    def read(topic: str) -> DataFrame:
        return (
            session.read.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .load()
        )

    stream = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "t")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 300)
        .load()
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "out")
        .option("checkpointLocation", folder)
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    counted = read("out").selectExpr("count(*)", "count(distinct key)").collect()[0]
    found = {
        "batch": read("t").count(),
        "streamed": list(counted),
        "batches": sum(1 for one in stream.recentProgress if one.numInputRows),
    }
    print(json.dumps(found))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
