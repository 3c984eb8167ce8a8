"""AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26): what a transaction consists of, and
how it ends.

Newer versions than these are for brokers, or for clients of KIP-890's second part.
"""

from collections.abc import Mapping
from typing import Any, Final

from broker.coordinator.topics import INTERNAL_TOPICS, OFFSETS_TOPIC, partition_of
from broker.coordinator.transactions.transaction import ProducerEpoch
from broker.errors import KafkaError
from broker.kafka import codec
from broker.kafka.codec import Message
from broker.kafka.group_membership import require_group
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from metadata_log.acls import AclOperation
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_FIRST_WITH_PRODUCER_FENCED: Final = 2
"""Of all three APIs; the clients of older ones know the code before it alone."""


async def add_partitions_to_txn(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    """All partitions, or none: what may be added is told so if others may not."""
    topics = request["v3_and_below_topics"]
    tps = [TopicPartition(each["name"], number) for each in topics for number in each["partitions"]]
    transactional_id = request["v3_and_below_transactional_id"]
    producer = ProducerEpoch(
        request["v3_and_below_producer_id"], request["v3_and_below_producer_epoch"]
    )
    try:
        _require(services, context, transactional_id)
        codes = _not_to_be_added(services, context, tps)
        if not codes:
            shard = services.transactions.shard_of(transactional_id)
            code = await shard.add_partitions(transactional_id, producer, frozenset(tps))
            codes = dict.fromkeys(tps, code)
    except KafkaError as error:
        codes = dict.fromkeys(tps, error.code)
    results = [
        {
            "name": each["name"],
            "results_by_partition": [
                {
                    "partition_index": number,
                    "partition_error_code": _told(
                        context,
                        codes.get(
                            TopicPartition(each["name"], number),
                            errors_pb2.OPERATION_NOT_ATTEMPTED,
                        ),
                    ),
                }
                for number in each["partitions"]
            ],
        }
        for each in topics
    ]
    values: Message = {"throttle_time": 0, "results_by_topic_v3_and_below": results}
    return [codec.encode_response("add_partitions_to_txn", context.version, values)]


def _not_to_be_added(
    services: KafkaServices, context: RequestContext, tps: list[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """Error codes of those partitions that keep all from being added."""
    rights = services.authorizer.rights_of(context)
    names = {tp.topic for tp in tps}
    writable = rights.topics(AclOperation.WRITE, names - INTERNAL_TOPICS)
    codes = {}
    for tp in tps:
        topic = services.metadata.topics.get(tp.topic)
        if tp.topic not in writable:
            codes[tp] = errors_pb2.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or not 0 <= tp.partition < len(topic.partitions):
            codes[tp] = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    return codes


async def add_offsets_to_txn(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    """The group's partition of __consumer_offsets joins the transaction like any other."""
    transactional_id, group_id = request["transactional_id"], request["group_id"]
    try:
        _require(services, context, transactional_id)
        require_group(services, context, AclOperation.READ, group_id)
        shard = services.transactions.shard_of(transactional_id)
        tp = offsets_partition(services, group_id)
        code = await shard.add_partitions(transactional_id, _producer(request), {tp})
    except KafkaError as error:
        code = error.code
    values: Message = {"throttle_time": 0, "error_code": _told(context, code)}
    return [codec.encode_response("add_offsets_to_txn", context.version, values)]


def offsets_partition(services: KafkaServices, group_id: str) -> TopicPartition:
    """Raises: KafkaError: COORDINATOR_NOT_AVAILABLE."""
    topic = services.metadata.topics.get(OFFSETS_TOPIC)
    if topic is None:
        raise KafkaError(
            errors_pb2.COORDINATOR_NOT_AVAILABLE,
            f"group {group_id!r}: {OFFSETS_TOPIC} does not exist yet; look for its coordinator",
        )
    return TopicPartition(OFFSETS_TOPIC, partition_of(group_id, len(topic.partitions)))


async def end_txn(services: KafkaServices, context: RequestContext, request: Message) -> Buffers:
    """Answered once it is decided; readers of what is committed see it a moment later."""
    transactional_id = request["transactional_id"]
    try:
        _require(services, context, transactional_id)
        code = await services.transactions.shard_of(transactional_id).end_transaction(
            transactional_id, _producer(request), commit=request["committed"]
        )
    except KafkaError as error:
        code = error.code
    values: Message = {"throttle_time": 0, "error_code": _told(context, code)}
    return [codec.encode_response("end_txn", context.version, values)]


def _require(services: KafkaServices, context: RequestContext, transactional_id: str) -> None:
    """Raises: KafkaError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
    rights = services.authorizer.rights_of(context)
    rights.require_transactional_id(AclOperation.WRITE, transactional_id)


def _producer(request: Mapping[str, Any]) -> ProducerEpoch:
    return ProducerEpoch(request["producer_id"], request["producer_epoch"])


def _told(context: RequestContext, code: int) -> int:
    return fenced_as(code, context.version >= _FIRST_WITH_PRODUCER_FENCED)


def fenced_as(code: int, knows_producer_fenced: bool) -> int:
    """The code for a client that may be too old for PRODUCER_FENCED."""
    if code == errors_pb2.PRODUCER_FENCED and not knows_producer_fenced:
        return errors_pb2.INVALID_PRODUCER_EPOCH
    return code
