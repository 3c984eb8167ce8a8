"""The API ElectLeaders (43), which the controller carries out."""

from typing import Final

from quorate.broker.changes.table import ELECT_LEADERS
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate_proto.v1 import admin_pb2, errors_pb2

_ELECTION_TYPES: Final = {0: admin_pb2.ELECTION_PREFERRED, 1: admin_pb2.ELECTION_UNCLEAN}


async def elect_leaders(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    topics = request["topic_partitions"]
    wanted = [
        admin_pb2.TopicPartitions(topic=topic["topic"], partitions=topic["partitions"])
        for topic in topics or ()
    ]
    election_type = _ELECTION_TYPES.get(request.get("election_type", 0))
    if election_type is None:
        response = _refused(wanted, f"election type {request['election_type']}: 0 or 1 is served")
    else:
        response = await services.forwarder.forward(
            ELECT_LEADERS,
            admin_pb2.ElectLeadersRequest(
                context=context.for_controller("ElectLeaders", request["timeout"]),
                election_type=election_type,
                topics=wanted,
                all_partitions=topics is None,
            ),
            api_version=context.version,
        )
    values = {
        "throttle_time": 0,
        "error_code": response.error_code,
        "replica_election_results": _by_topic(response),
    }
    return values


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
