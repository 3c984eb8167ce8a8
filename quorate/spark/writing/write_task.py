"""One task of a Spark write: it builds batches from its rows, and sends them until all are
acknowledged."""

import itertools
import time
from collections.abc import Iterator

import grpc
import pyarrow as pa

from quorate.client.bootstrap import BootstrapError
from quorate.spark.call_errors import RETRIABLE, error_name, raise_if_permanent, reason_of
from quorate.spark.cluster_client import CALL_TIMEOUT_SECONDS, ClusterClient
from quorate.spark.errors import ClusterUnavailable, UnknownTopic, WriteRefused
from quorate.spark.retries import Retries
from quorate.spark.writing.batch_builder import BatchBuilder, BatchSettings, ProducerBatch
from quorate.spark.writing.partitioner import Partitioner, TargetTopic
from quorate.spark.writing.row_columns import rows_of
from quorate.spark.writing.sender import Sender, SenderSettings
from quorate.spark.writing.write_options import WriteOptions
from quorate_proto.v1.errors_pb2 import (
    COORDINATOR_LOAD_IN_PROGRESS,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from quorate_proto.v1.replication_pb2 import InitProducerIdRequest, InitProducerIdResponse
from quorate_proto.v1.replication_pb2_grpc import RangeWriteStub


def write_rows(options: WriteOptions, batches: Iterator[pa.RecordBatch], *, task: int) -> int:
    """Write all rows of a task, and return their number when all are acknowledged.

    Args:
        options: the options of the write.
        batches: rows whose schema was checked.
        task: the number of the task. Rows without keys begin at this partition.

    Raises:
        QuorateSourceError: a row cannot be written, or the cluster refuses it. Some rows may be
            written.
    """
    for first in batches:
        if first.num_rows:
            with options.connection.open() as cluster:
                writer = _TaskWriter(cluster, options, task)
                return writer.write(itertools.chain([first], batches))
    return 0


class _TaskWriter:
    """The writer of one attempt of one task, with a producer id of its own."""

    def __init__(self, cluster: ClusterClient, options: WriteOptions, task: int) -> None:
        producer = init_producer_id(cluster, options.connection.retry_policy.new_retries())
        self._cluster = cluster
        self._options = options
        self._partitioner = Partitioner(self._describe, options.topic, task)
        self._builder = BatchBuilder(
            self._partitioner.targets,
            BatchSettings(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                codec=options.compression,
                batch_bytes=options.batch_bytes,
            ),
        )

    def write(self, batches: Iterator[pa.RecordBatch]) -> int:
        options = self._options
        patience = SenderSettings(options.delivery_timeout_ms, options.request_timeout_ms)
        with Sender(self._cluster, patience) as sender:
            for batch in batches:
                sender.send(self._built_of(batch))
            sender.send(self._builder.close_all())
            sender.flush()
            return sender.records_written

    def _built_of(self, batch: pa.RecordBatch) -> Iterator[ProducerBatch]:
        """Append the rows, and yield the batches that are full."""
        now_ms = time.time_ns() // 1_000_000
        rows = rows_of(batch, topic_column=self._options.topic is None, now_ms=now_ms)
        for part in self._partitioner.split(rows):
            yield from self._builder.append(rows, part)
        yield from self._builder.close_largest()

    def _describe(self, topic: str) -> TargetTopic:
        return describe_target(
            self._cluster, topic, self._options.connection.retry_policy.new_retries()
        )


def init_producer_id(cluster: ClusterClient, retries: Retries) -> InitProducerIdResponse:
    """Ask any broker for a producer id.

    Raises:
        WriteRefused: the user may not write to any topic.
        ClusterUnavailable: no broker gave a producer id within the retries.
    """
    while True:
        address = cluster.any_broker()
        try:
            response = RangeWriteStub(cluster.channel(address)).InitProducerId(
                InitProducerIdRequest(), timeout=CALL_TIMEOUT_SECONDS
            )
        except grpc.RpcError as error:
            raise_if_permanent(error)
            reason = reason_of(error)
        else:
            if not response.error_code:
                return response
            reason = f"{error_name(response.error_code)}: {response.error_message}"
            if response.error_code not in RETRIABLE | {COORDINATOR_LOAD_IN_PROGRESS}:
                raise WriteRefused(f"{address} gives no producer id: {reason}")
        retries.pause(f"asking {address} for a producer id", reason)
        cluster.describe_topics()


def describe_target(cluster: ClusterClient, topic: str, retries: Retries) -> TargetTopic:
    """Describe a topic to write to. A missing topic is requested, as Kafka's producers do.

    Raises:
        UnknownTopic: the topic does not exist, and the cluster does not create it.
        WriteRefused: the user may not see the topic, or not create it.
        ClusterUnavailable: no broker described it within the retries.
    """
    while True:
        (described,) = cluster.describe_topics([topic]).topics
        if not described.error_code and described.partitions:
            return TargetTopic(
                described.topic_id, len(described.partitions), described.max_message_bytes
            )
        code = described.error_code
        if code == UNKNOWN_TOPIC_OR_PARTITION:
            code = _ask_for(cluster, topic)
        if code and code not in RETRIABLE:
            raise WriteRefused(f"topic {topic!r} cannot be written to: {error_name(code)}")
        retries.pause(f"describing topic {topic!r}", error_name(code))


def _ask_for(cluster: ClusterClient, topic: str) -> int:
    """Request the creation of a topic, and return the error code of the answer."""
    try:
        code = cluster.ask_for_topic(topic)
    except BootstrapError as error:
        raise ClusterUnavailable(f"asking for topic {topic!r}: {error}") from None
    if code == UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopic(
            f"the cluster has no topic {topic!r} and creates none (auto.create.topics.enable): "
            "create it, or correct the option or the column 'topic'"
        )
    return code
