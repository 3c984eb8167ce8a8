"""AddPartitionsToTxn (24), AddOffsetsToTxn (25) and EndTxn (26): the parts of a transaction, and
its end.

Clients with transactions v2 (KIP-890) do not announce parts, and end transactions by EndTxn 5.
"""

from collections.abc import Mapping
from typing import Any, Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC, partition_of
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
)
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.groups.group_membership_apis import require_group
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.transactions.add_partitions_for_brokers import (
    add_partitions_for_brokers,
    partition_exists,
)
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_FIRST_WITH_PRODUCER_FENCED: Final = 2
"""The first version of all three APIs that has this error code. Clients of older versions know
only the earlier code.
"""


_FIRST_ADD_OF_BROKERS: Final = 4
_FIRST_END_IN_NEXT_EPOCH: Final = 5
_UNCHANGED: Final = ProducerEpoch(NO_PRODUCER_ID, NO_EPOCH)


async def add_partitions_to_txn(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """AddPartitionsToTxn (24) of a client; from version 4 on that of a broker."""
    if context.version >= _FIRST_ADD_OF_BROKERS:
        return await add_partitions_for_brokers(services, context, request)
    return await _add_for_client(services, context, request)


async def _add_for_client(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """Add all partitions or none. If some may not be added, the others
    get the error code OPERATION_NOT_ATTEMPTED.
    """
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
                    "partition_error_code": _code_for_client(
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
    return values


def _not_to_be_added(
    services: KafkaServices, context: RequestContext, tps: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the error codes of the partitions that may not be added."""
    rights = services.authorizer.rights_of(context)
    names = {tp.topic for tp in tps}
    writable = rights.topics(AclOperation.WRITE, names - INTERNAL_TOPICS)
    codes: dict[TopicPartition, int] = {}
    for tp in tps:
        if tp.topic not in writable:
            codes[tp] = errors_pb2.TOPIC_AUTHORIZATION_FAILED
        elif not partition_exists(services, tp):
            codes[tp] = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    return codes


async def add_offsets_to_txn(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """AddOffsetsToTxn (25): add the group's partition of __consumer_offsets to the transaction."""
    transactional_id, group_id = request["transactional_id"], request["group_id"]
    try:
        _require(services, context, transactional_id)
        require_group(services, context, AclOperation.READ, group_id)
        shard = services.transactions.shard_of(transactional_id)
        tp = offsets_partition(services, group_id)
        code = await shard.add_partitions(transactional_id, _producer(request), {tp})
    except KafkaError as error:
        code = error.code
    values: Message = {"throttle_time": 0, "error_code": _code_for_client(context, code)}
    return values


def offsets_partition(services: KafkaServices, group_id: str) -> TopicPartition:
    """Return the partition of __consumer_offsets that holds the offsets of the group.

    Raises:
        KafkaError: COORDINATOR_NOT_AVAILABLE.
    """
    topic = services.metadata.topics.get(OFFSETS_TOPIC)
    if topic is None:
        raise KafkaError(
            errors_pb2.COORDINATOR_NOT_AVAILABLE,
            f"group {group_id!r}: {OFFSETS_TOPIC} does not exist yet; look for its coordinator",
        )
    return TopicPartition(OFFSETS_TOPIC, partition_of(group_id, len(topic.partitions)))


async def end_txn(services: KafkaServices, context: RequestContext, request: Message) -> Message:
    """EndTxn (26): commit or abort the transaction. The response is sent once the end is
    decided. Consumers with read_committed see it a moment later. From version 5 on it has the id
    and epoch with which the producer goes on.
    """
    next_producer = _UNCHANGED
    code: int = errors_pb2.NONE
    try:
        _require(services, context, request["transactional_id"])
        if context.version >= _FIRST_END_IN_NEXT_EPOCH:
            next_producer = await _end_in_next_epoch(services, request)
        else:
            code = await _end(services, request)
    except KafkaError as error:
        code = error.code
    values: Message = {
        "throttle_time": 0,
        "error_code": _code_for_client(context, code),
        "producer_id": next_producer.producer_id,
        "producer_epoch": next_producer.epoch,
    }
    return values


async def _end(services: KafkaServices, request: Message) -> int:
    transactional_id = request["transactional_id"]
    shard = services.transactions.shard_of(transactional_id)
    return await shard.end_transaction(
        transactional_id, _producer(request), commit=request["committed"]
    )


async def _end_in_next_epoch(services: KafkaServices, request: Message) -> ProducerEpoch:
    transactional_id = request["transactional_id"]
    shard = services.transactions.shard_of(transactional_id)
    return await shard.end_in_next_epoch(
        transactional_id, _producer(request), commit=request["committed"]
    )


def _require(services: KafkaServices, context: RequestContext, transactional_id: str) -> None:
    """Refuse the request unless its client may write with the transactional id.

    Raises:
        KafkaError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    rights = services.authorizer.rights_of(context)
    rights.require_transactional_id(AclOperation.WRITE, transactional_id)


def _producer(request: Mapping[str, Any]) -> ProducerEpoch:
    return ProducerEpoch(request["producer_id"], request["producer_epoch"])


def _code_for_client(context: RequestContext, code: int) -> int:
    return fenced_as(code, context.version >= _FIRST_WITH_PRODUCER_FENCED)


def fenced_as(code: int, knows_producer_fenced: bool) -> int:
    """Return the error code for a client that may be too old to know PRODUCER_FENCED."""
    if code == errors_pb2.PRODUCER_FENCED and not knows_producer_fenced:
        return errors_pb2.INVALID_PRODUCER_EPOCH
    return code
