"""AlterPartitionReassignments (45) and ListPartitionReassignments (46): the controller's (C11)."""

from typing import Final

from broker.control.changes import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS
from broker.kafka import codec
from broker.kafka.admin_context import admin_context, ask_controller
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from quorate_proto.v1 import admin_pb2

_FIRST_VERSION_WITH_REPLICATION_FACTOR: Final = 1
"""Before it, a request may always change the number of replicas (KIP-860)."""


async def alter_partition_reassignments(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    may_change = request.get("allow_replication_factor_change", True)
    response = await ask_controller(
        services,
        context,
        ALTER_PARTITION_REASSIGNMENTS,
        admin_pb2.AlterPartitionReassignmentsRequest(
            context=admin_context(context, "AlterPartitionReassignments", request["timeout"]),
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
    return [codec.encode_response("alter_partition_reassignments", context.version, values)]


async def list_partition_reassignments(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    topics = request["topics"]
    response = await ask_controller(
        services,
        context,
        LIST_PARTITION_REASSIGNMENTS,
        admin_pb2.ListPartitionReassignmentsRequest(
            context=admin_context(context, "ListPartitionReassignments", request["timeout"]),
            all=topics is None,
            partitions=[
                admin_pb2.PartitionRef(topic=topic["name"], partition=number)
                for topic in topics or ()
                for number in topic["partition_indexes"]
            ],
        ),
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
    return [codec.encode_response("list_partition_reassignments", context.version, values)]
