"""One DataFrame over a table and over the records of its topic that are not in it yet.

Rows and position are read from one state of the table, so each offset is in exactly one of both
parts: below the position in the files of that state, from the position on in the log.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from quorate.client.admin import AdminClient
from quorate.common.topic_partition import TopicPartition
from quorate.spark.offset_ranges import DescribedTopic
from quorate.spark.options.option_table import (
    KEY_FORMAT,
    MODE,
    STARTING_OFFSETS,
    SUBSCRIBE,
    VALUE_FORMAT,
)
from quorate.spark.options.topic_subscription import Subscription
from quorate.spark.reading.offset_resolver import known_topics
from quorate.spark.typed.typed_columns import CORRUPT
from quorate.tables.lake_table import LakeTable, TableContent
from quorate.tables.open_table import open_table
from quorate.tables.service.service_config import read_service_config
from quorate.tables.service.table_topics import pipeline_config, table_topics
from quorate.tables.table_errors import TableError
from quorate.tables.write_mode import RAW_KEY, WriteMode, identity_column

EARLIEST: Final = -2
"""The number of Spark's options for the beginning of a log."""
_OF_VALUES: Final = ("value", "key", MODE.name.lower())
"""The beginnings of the names of options that say what keys and values are."""
_TOMBSTONE: Final = "_is_tombstone"


def table_and_log(
    session: SparkSession,
    topic: str,
    *,
    bootstrap_servers: str,
    config: Path | str | None = None,
    settings: Mapping[str, str] | None = None,
    security: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return all rows of a topic's table, and all newer records of the topic as rows of it.

    The files of the table are read as they are now. They must stay until the query is done: upkeep
    of the table deletes files of snapshots that are older than ``table.snapshot.retention.ms``.

    Args:
        session: a session that knows the format ``quorate`` and can read the files of the table.
        topic: a topic with ``table.format``, whose table has had a first run.
        bootstrap_servers: the cluster.
        config: the file of the table service (tables.toml).
        settings: values that go before those of the file, such as ``tables.warehouse``.
        security: the options of `quorate.client.security`.

    Raises:
        TableError: there is no such table, or it is of an earlier topic of this name.
        ConfigError: the file or a setting is wrong.
        QuorateSourceError: no broker answers.
    """
    service = read_service_config(
        None if config is None else Path(config),
        bootstrap_servers=bootstrap_servers,
        security=security or {},
        settings=settings or {},
    )
    with AdminClient(bootstrap_servers, options=dict(service.security)) as admin:
        found = table_topics(admin, [topic])
        states = admin.describe_pipelines([found[0].pipeline]) if found else []
        if not any(one.topics for one in states):
            raise TableError(f"topic {topic} has no table, or the table has had no run so far")
    pipeline = pipeline_config(found[0], service)
    assert pipeline.table is not None
    table = open_table(pipeline.table, pipeline.name, pa.schema([]))
    with pipeline.source.reading.connection.open() as cluster:
        described = known_topics(cluster, Subscription(topics=(topic,)))
    options = {**pipeline.reading, SUBSCRIBE.name: topic}
    return joined(session, table, options, described, skips_bad=bool(found[0].dead_letter_topic))


def joined(
    session: SparkSession,
    table: LakeTable,
    options: Mapping[str, str],
    described: Mapping[str, DescribedTopic],
    *,
    skips_bad: bool,
) -> DataFrame:
    """Return the rows of the present state of a table, and those that are only in the log.

    Args:
        session: reads both.
        table: the table.
        options: the options with which its topics are read, with ``subscribe``.
        described: its topics as they are now.
        skips_bad: whether records that cannot be decoded are left out, as they are dead letters.
    """
    content, position = table.content(), table.position(described)
    starts: dict[str, dict[str, int]] = {}
    for topic, found in described.items():
        for number in range(found.partitions):
            mark = position.marks.get(TopicPartition(topic, number))
            if mark is not None and mark.topic_id != found.topic_id:
                raise TableError(f"topic {topic} was created anew, and the table is of the old one")
            starts.setdefault(topic, {})[str(number)] = EARLIEST if mark is None else mark.offset
    reading = {**options, STARTING_OFFSETS.name: json.dumps(starts)}
    rows, log = _rows(session, content), _log(session, reading, skips_bad)
    if position.mode is WriteMode.UPSERT:
        rows, log = upserted(rows, log, _raw(session, reading))
    return rows.unionByName(log, allowMissingColumns=True)


def _rows(session: SparkSession, content: TableContent) -> DataFrame:
    columns = from_arrow_schema(content.schema)
    if not content.files:
        return session.createDataFrame([], columns)
    reader = session.read.schema(columns)
    if content.partitions_in_paths:
        reader = reader.option("basePath", content.folder)
    return reader.parquet(*content.files).select(columns.names)


def _log(session: SparkSession, options: Mapping[str, str], skips_bad: bool) -> DataFrame:
    reader = session.read.format("quorate").options(**options)
    if not skips_bad:
        return reader.load()
    given = {name.lower() for name in options}
    typed = {"key": KEY_FORMAT, "value": VALUE_FORMAT}
    corrupt = [CORRUPT + name for name, one in typed.items() if one.name.lower() in given]
    frame = reader.option(MODE.name, "permissive").load()
    for name in corrupt:
        frame = frame.where(frame[name].isNull()).drop(name)
    return frame


def _raw(session: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the bytes of the keys in a log, and which records have no value."""
    plain = {
        name: value for name, value in options.items() if not name.lower().startswith(_OF_VALUES)
    }
    records = session.read.format("quorate").options(**plain).load()
    return records.select(
        "partition", "offset", F.col("key").alias(RAW_KEY), F.isnull("value").alias(_TOMBSTONE)
    )


def upserted(rows: DataFrame, log: DataFrame, raw: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the rows of a table whose keys have no newer record, and the newest records.

    Args:
        rows: the table, with one row for each key of a partition.
        log: the records that are not in it yet, as rows, without those that cannot be decoded.
        raw: the same records' offsets, keys and tombstones.
    """
    newest_first = Window.partitionBy("partition", RAW_KEY).orderBy(F.desc("offset"))
    newest = (
        log.join(raw.where(F.isnotnull(RAW_KEY)), ["partition", "offset"])
        .withColumn("_place", F.row_number().over(newest_first))
        .where("_place = 1")
    )
    column = identity_column(rows.columns)
    keys = newest.select(F.col("partition").alias("_partition"), F.col(RAW_KEY).alias("_newer"))
    has_newer = (rows["partition"] == keys["_partition"]) & (
        rows[column].cast("binary") == keys["_newer"]
    )
    kept = rows.join(keys, has_newer, "left_anti")
    wanted = log.columns if column != RAW_KEY else [*log.columns, RAW_KEY]
    return kept, newest.where(~F.col(_TOMBSTONE)).select(wanted)
