"""DeleteRecords (21): move the log start offset of partitions that this broker leads."""

from typing import Final

from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.replication.api import DeleteOutcome, DeleteRecordsPartition
from quorate.common.acl_types import AclOperation
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_NOT_ALLOWED: Final = DeleteOutcome(errors_pb2.TOPIC_AUTHORIZATION_FAILED)


async def delete_records(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    names = [topic["name"] for topic in request["topics"]]
    allowed = services.authorizer.rights_of(context).topics(AclOperation.DELETE, names)
    wants = [
        DeleteRecordsPartition(
            TopicPartition(topic["name"], partition["partition_index"]), partition["offset"]
        )
        for topic in request["topics"]
        for partition in topic["partitions"]
        if topic["name"] in allowed
    ]
    outcomes = iter(await services.replicas.delete_records(wants, request["timeout"]))
    topics = [
        {
            "name": topic["name"],
            "partitions": [
                _result(
                    partition["partition_index"],
                    next(outcomes) if topic["name"] in allowed else _NOT_ALLOWED,
                )
                for partition in topic["partitions"]
            ],
        }
        for topic in request["topics"]
    ]
    values = {"throttle_time": 0, "topics": topics}
    return values


def _result(partition: int, outcome: DeleteOutcome) -> Message:
    return {
        "partition_index": partition,
        "low_watermark": outcome.low_watermark,
        "error_code": outcome.error_code,
    }
