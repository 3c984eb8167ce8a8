"""Both formats, both directions, batch and stream, without registering anything.

Arguments: bootstrap servers, a topic to read, a topic to write to, a folder. Prints JSON.
"""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import quorate

bootstrap, source, target, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
cluster = {"kafka.bootstrap.servers": bootstrap}

records = spark.read.format("quorate").options(**cluster, subscribe=source).load()
read = records.agg(F.count("*"), F.sum(F.crc32("value"))).first()
records.select("key", "value").write.format("quorate").options(**cluster, topic=target).mode(
    "append"
).save()

stream = (
    spark.readStream.format("quorate")
    .options(**cluster, subscribe=target, startingOffsets="earliest")
    .load()
    .writeStream.format("parquet")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start(f"{folder}/out")
)
stream.awaitTermination()
streamed = spark.read.parquet(f"{folder}/out").agg(F.count("*"), F.sum(F.crc32("value"))).first()

changes = spark.read.format("quorate-metadata").options(**cluster).load()
topics = [row.topic for row in changes.select("topic").dropna().distinct().collect()]
told = {"package": quorate.__file__, "read": read, "streamed": streamed, "topics": topics}
print(json.dumps(told))
spark.stop()
