"""ElectLeaders (43): carried out by the controller, wherever it arrives."""

from typing import Final

from broker.control.changes import ELECT_LEADERS
from broker.kafka import codec
from broker.kafka.admin_context import admin_context, ask_controller
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from quorate_proto.v1 import admin_pb2, errors_pb2

_ELECTION_TYPES: Final = {0: admin_pb2.ELECTION_PREFERRED, 1: admin_pb2.ELECTION_UNCLEAN}


async def elect_leaders(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    topics = request["topic_partitions"]
    wanted = [
        admin_pb2.TopicPartitions(topic=topic["topic"], partitions=topic["partitions"])
        for topic in topics or ()
    ]
    election_type = _ELECTION_TYPES.get(request.get("election_type", 0))
    if election_type is None:
        response = _refused(wanted, f"election type {request['election_type']}: 0 or 1 is served")
    else:
        response = await ask_controller(
            services,
            context,
            ELECT_LEADERS,
            admin_pb2.ElectLeadersRequest(
                context=admin_context(context, "ElectLeaders", request["timeout"]),
                election_type=election_type,
                topics=wanted,
                all_partitions=topics is None,
            ),
        )
    values = {
        "throttle_time": 0,
        "error_code": response.error_code,
        "replica_election_results": _by_topic(response),
    }
    return [codec.encode_response("elect_leaders", context.version, values)]


def _refused(
    wanted: list[admin_pb2.TopicPartitions], message: str
) -> admin_pb2.ElectLeadersResponse:
    return admin_pb2.ElectLeadersResponse(
        error_code=errors_pb2.INVALID_REQUEST,
        partitions=[
            admin_pb2.PartitionResult(
                topic=topic.topic,
                partition=number,
                error_code=errors_pb2.INVALID_REQUEST,
                error_message=message,
            )
            for topic in wanted
            for number in topic.partitions
        ],
    )


def _by_topic(response: admin_pb2.ElectLeadersResponse) -> list[Message]:
    by_topic: dict[str, list[Message]] = {}
    for result in response.partitions:
        by_topic.setdefault(result.topic, []).append(
            {
                "partition_id": result.partition,
                "error_code": result.error_code,
                "error_message": result.error_message or None,
            }
        )
    return [{"topic": name, "partition_result": found} for name, found in by_topic.items()]
