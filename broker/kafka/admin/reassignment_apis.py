"""The APIs AlterPartitionReassignments (45) and ListPartitionReassignments (46), by the controller
(C11)."""

from typing import Final

from quorate.broker.changes.table import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate_proto.v1 import admin_pb2

_FIRST_VERSION_WITH_REPLICATION_FACTOR: Final = 1
"""Before this version, a request may always change the number of replicas (KIP-860)."""


async def alter_partition_reassignments(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    may_change = request.get("allow_replication_factor_change", True)
    response = await services.forwarder.forward(
        ALTER_PARTITION_REASSIGNMENTS,
        admin_pb2.AlterPartitionReassignmentsRequest(
            context=context.for_controller("AlterPartitionReassignments", request["timeout"]),
            partitions=[
                admin_pb2.WantedReassignment(
                    topic=topic["name"],
                    partition=partition["partition_index"],
                    replicas=partition["replicas"] or (),
                    cancel=partition["replicas"] is None,
                )
                for topic in request["topics"]
                for partition in topic["partitions"]
            ],
            allow_replication_factor_change=may_change,
        ),
        api_version=context.version,
    )
    by_topic: dict[str, list[Message]] = {}
    for result in response.partitions:
        by_topic.setdefault(result.topic, []).append(
            {
                "partition_index": result.partition,
                "error_code": result.error_code,
                "error_message": result.error_message or None,
            }
        )
    values: Message = {
        "throttle_time": 0,
        "error_code": response.error_code,
        "error_message": None,
        "responses": [{"name": name, "partitions": found} for name, found in by_topic.items()],
    }
    if context.version >= _FIRST_VERSION_WITH_REPLICATION_FACTOR:
        values["allow_replication_factor_change"] = may_change
    return values


async def list_partition_reassignments(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    topics = request["topics"]
    response = await services.forwarder.forward(
        LIST_PARTITION_REASSIGNMENTS,
        admin_pb2.ListPartitionReassignmentsRequest(
            context=context.for_controller("ListPartitionReassignments", request["timeout"]),
            all=topics is None,
            partitions=[
                admin_pb2.PartitionRef(topic=topic["name"], partition=number)
                for topic in topics or ()
                for number in topic["partition_indexes"]
            ],
        ),
        api_version=context.version,
    )
    by_topic: dict[str, list[Message]] = {}
    for ongoing in response.partitions:
        by_topic.setdefault(ongoing.topic, []).append(
            {
                "partition_index": ongoing.partition,
                "replicas": list(ongoing.replicas),
                "adding_replicas": list(ongoing.adding_replicas),
                "removing_replicas": list(ongoing.removing_replicas),
            }
        )
    values = {
        "throttle_time": 0,
        "error_code": response.error_code,
        "error_message": None,
        "topics": [{"name": name, "partitions": found} for name, found in by_topic.items()],
    }
    return values
