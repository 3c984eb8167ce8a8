"""CreatePartitions (37): carried out by the controller, wherever it arrives (C14)."""

from typing import Final

from broker.control.changes import CREATE_PARTITIONS
from broker.kafka import codec
from broker.kafka.admin_context import admin_context, ask_controller
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from broker.kafka.topic_results import named_twice, result_per_topic
from quorate_proto.v1 import admin_pb2

_FIRST_ADDITION_REFUSED_OVER_QUOTA: Final = 3
"""Clients of earlier versions do not know THROTTLING_QUOTA_EXCEEDED: they are only muted (Q4)."""


async def create_partitions(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    names = [topic["name"] for topic in request["topics"]]
    twice = named_twice(names)
    response = await ask_controller(
        services,
        context,
        CREATE_PARTITIONS,
        admin_pb2.CreatePartitionsRequest(
            context=admin_context(
                context,
                "CreatePartitions",
                request["timeout"],
                accept_over_quota=context.version < _FIRST_ADDITION_REFUSED_OVER_QUOTA,
            ),
            topics=[_wanted(topic) for topic in request["topics"] if topic["name"] not in twice],
            validate_only=request["validate_only"],
        ),
    )
    results = result_per_topic(names, response.topics, response.error_code)
    context.throttle.at_least(response.throttle_time_ms)
    values = {
        "throttle_time": 0,
        "results": [
            {
                "name": result.name,
                "error_code": result.error_code,
                "error_message": result.error_message or None,
            }
            for result in results
        ],
    }
    return [codec.encode_response("create_partitions", context.version, values)]


def _wanted(topic: Message) -> admin_pb2.NewPartitions:
    return admin_pb2.NewPartitions(
        name=topic["name"],
        count=topic["count"],
        assignments=[
            admin_pb2.Replicas(broker_ids=one["broker_ids"]) for one in topic["assignments"] or ()
        ],
    )
