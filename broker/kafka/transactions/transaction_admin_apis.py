"""The admin APIs of transactions, by which operators inspect transactions and end a hanging one
(KIP-664).

They are WriteTxnMarkers (27), DescribeProducers (61), DescribeTransactions (65) and
ListTransactions (66).
"""

from collections.abc import Mapping
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.common.regular_expressions import compiled_regex
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    NEVER_MS,
    TransactionMetadata,
    TransactionState,
)
from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.replication.api import MarkerEntry
from quorate.broker.replication.serving.producer_states import ProducerState
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

MARKER_TIMEOUT_MS: Final = 30_000
"""The timeout of writing markers. The request has none, and Kafka waits for the same time."""

_ANY_DURATION_MS: Final = -1
STATES: Final[Mapping[str, TransactionState]] = {state.title: state for state in TransactionState}


async def write_txn_markers(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """WriteTxnMarkers (27): end transactions in partitions that this broker leads, without
    asking their coordinator.
    """
    entries = [
        MarkerEntry(
            TopicPartition(topic["name"], index),
            EndMarker(
                marker["producer_id"],
                marker["producer_epoch"],
                marker["transaction_result"],
                marker["coordinator_epoch"],
            ),
            marker.get("transaction_version", 0),
        )
        for marker in request["markers"]
        for topic in marker["topics"]
        for index in topic["partition_indexes"]
    ]
    if may_write_markers(services.authorizer.rights_of(context)):
        codes = iter(await services.replicas.write_markers(entries, MARKER_TIMEOUT_MS))
    else:
        codes = iter([errors_pb2.CLUSTER_AUTHORIZATION_FAILED] * len(entries))
    markers = [
        {
            "producer_id": marker["producer_id"],
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        {"partition_index": index, "error_code": next(codes)}
                        for index in topic["partition_indexes"]
                    ],
                }
                for topic in marker["topics"]
            ],
        }
        for marker in request["markers"]
    ]
    return {"markers": markers}


def may_write_markers(rights: Rights) -> bool:
    """Return whether the client may write markers. Either of two rights is enough. A refusal is
    logged only if the client has neither.
    """
    if rights.may_cluster(AclOperation.ALTER, log_denied=False):
        return True
    return rights.may_cluster(AclOperation.CLUSTER_ACTION)


async def describe_producers(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """DescribeProducers (61): describe the producers of partitions of which this broker has a
    replica, as leader or follower.
    """
    rights = services.authorizer.rights_of(context)
    readable = rights.topics(AclOperation.READ, (topic["name"] for topic in request["topics"]))
    topics = []
    for topic in request["topics"]:
        partitions = []
        for index in topic["partition_indexes"]:
            described: Message = {"partition_index": index, "error_code": errors_pb2.NONE}
            tp = TopicPartition(topic["name"], index)
            try:
                if topic["name"] not in readable:
                    raise KafkaError(
                        errors_pb2.TOPIC_AUTHORIZATION_FAILED,
                        rights.refusal(AclOperation.READ, ResourceType.TOPIC, topic["name"]),
                    )
                states = await services.replicas.producer_states(tp)
            except KafkaError as error:
                code = error.code
                exists = tp.partition in range(services.metadata.partition_count(tp.topic))
                if code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION and exists:
                    # A client that asked a certain broker waits for no other replica, as in Kafka.
                    code = errors_pb2.NOT_LEADER_OR_FOLLOWER
                described |= {
                    "error_code": code,
                    "error_message": error.message,
                    "active_producers": [],
                }
            else:
                described["active_producers"] = [_producer(state) for state in states]
            partitions.append(described)
        topics.append({"name": topic["name"], "partitions": partitions})
    values = {"throttle_time": 0, "topics": topics}
    return values


def _producer(state: ProducerState) -> Message:
    return {
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "last_sequence": state.last_sequence,
        "last_timestamp": state.last_timestamp_ms,
        "coordinator_epoch": state.coordinator_epoch,
        "current_txn_start_offset": state.transaction_start_offset,
    }


async def describe_transactions(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """DescribeTransactions (65): describe transactions that this broker coordinates."""
    rights = services.authorizer.rights_of(context)
    states = []
    for transactional_id in request["transactional_ids"]:
        described = _nothing(transactional_id)
        try:
            require_transactional_id(rights, transactional_id)
            found = services.transactions.find(transactional_id)
        except KafkaError as error:
            described["error_code"] = error.code
        else:
            described |= _described(found, rights)
        states.append(described)
    values = {"throttle_time": 0, "transaction_states": states}
    return values


def require_transactional_id(rights: Rights, transactional_id: str) -> None:
    """Refuse the request unless its client may describe the transactional id.

    Raises:
        KafkaError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    kind = ResourceType.TRANSACTIONAL_ID
    if not rights.may(AclOperation.DESCRIBE, kind, transactional_id):
        raise KafkaError(
            errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            rights.refusal(AclOperation.DESCRIBE, kind, transactional_id),
        )


def _nothing(transactional_id: str) -> Message:
    """Return an empty description, like the one that Kafka's brokers send with an error."""
    return {
        "error_code": errors_pb2.NONE,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": [],
    }


def _described(found: TransactionMetadata, rights: Rights) -> Message:
    """Describe a transaction. Partitions of topics that the client may not see are left out."""
    visible = rights.topics(AclOperation.DESCRIBE, (tp.topic for tp in found.partitions))
    topics: dict[str, list[int]] = {}
    for tp in sorted(found.partitions):
        if tp.topic in visible:
            topics.setdefault(tp.topic, []).append(tp.partition)
    return {
        "transaction_state": found.state.title,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.started_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "topics": [
            {"topic": topic, "partitions": partitions} for topic, partitions in topics.items()
        ],
    }


async def list_transactions(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """ListTransactions (66): list the transactions that this broker coordinates. Clients ask
    every broker.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    regex = request.get("transactional_id_pattern")
    pattern = compiled_regex(regex) if regex else None
    rights = services.authorizer.rights_of(context)
    wanted_states = {STATES[name] for name in request["state_filters"] if name in STATES}
    unknown = [name for name in request["state_filters"] if name not in STATES]
    producer_ids = set(request["producer_id_filters"])
    least_ms = request.get("duration_filter", _ANY_DURATION_MS)
    now_ms = services.wall_clock_ms()
    known = tuple(services.transactions.all())
    await AnswerPrice(services, context).add(len(known))
    listed = [
        {
            "transactional_id": transactional_id,
            "producer_id": found.producer_id,
            "transaction_state": found.state.title,
        }
        async for transactional_id, found in services.turns.through(known)
        if (not request["state_filters"] or found.state in wanted_states)
        and (not producer_ids or found.producer_id in producer_ids)
        and (least_ms < 0 or is_older(found, least_ms, now_ms))
        and (pattern is None or pattern.fullmatch(transactional_id))
        and rights.may(
            AclOperation.DESCRIBE,
            ResourceType.TRANSACTIONAL_ID,
            transactional_id,
            log_denied=False,
        )
    ]
    loading = services.transactions.is_loading
    values = {
        "throttle_time": 0,
        "error_code": errors_pb2.COORDINATOR_LOAD_IN_PROGRESS if loading else errors_pb2.NONE,
        "unknown_state_filters": unknown,
        "transaction_states": listed,
    }
    return values


def is_older(found: TransactionMetadata, duration_ms: int, now_ms: int) -> bool:
    """Return whether the transaction has been open for longer than ``duration_ms``."""
    return found.started_ms != NEVER_MS and now_ms - found.started_ms > duration_ms
