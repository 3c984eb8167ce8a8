"""The APIs of the share coordinator (KIP-932): Initialize-, Read-, Write-, Delete- and
ReadSummaryShareGroupState (83 to 87).

Brokers ask each other over gRPC. These are for brokers of Kafka, and for tools, so they need the
right to act as the cluster.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from quorate.broker.coordinator.share.share_questions import (
    Answer,
    Delete,
    Initialize,
    Question,
    Read,
    Summarize,
    Write,
)
from quorate.broker.coordinator.share.state.record_state import RecordState, StateBatch
from quorate.broker.coordinator.share.state.stored_state import (
    UNKNOWN_COUNT,
    SharePartitionKey,
    StateWrite,
)
from quorate.broker.kafka.connection.requests import Handler, RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation
from quorate.common.types import TopicId
from quorate_proto.v1 import errors_pb2

_STATES: Final = {state.value: state for state in RecordState}

QuestionOf: TypeAlias = Callable[[SharePartitionKey, Message], Question]
ResultOf: TypeAlias = Callable[[Answer], Message]


def _handler(question_of: QuestionOf, result_of: ResultOf) -> Handler:
    """Return the handler of an API that asks one kind of question about partitions."""

    async def handle(services: KafkaServices, context: RequestContext, request: Message) -> Message:
        refused = _refusal(services, context)
        asked = [
            (topic["topic_id"], partition)
            for topic in request["topics"]
            for partition in topic["partitions"]
        ]
        if refused is None:
            group_id = request["group_id"]
            answers = await services.share_states.ask_all(
                [
                    _question(question_of, group_id, TopicId(topic_id.bytes), partition)
                    for topic_id, partition in asked
                ]
            )
        else:
            answers = [refused] * len(asked)
        results = iter(answers)
        return {
            "results": [
                {
                    "topic_id": topic["topic_id"],
                    "partitions": [
                        {
                            "partition": partition["partition"],
                            "error_code": answer.error_code,
                            "error_message": answer.error_message or None,
                            **result_of(answer),
                        }
                        for partition in topic["partitions"]
                        for answer in [next(results)]
                    ],
                }
                for topic in request["topics"]
            ]
        }

    return handle


def _question(
    question_of: QuestionOf, group_id: str, topic_id: TopicId, partition: Message
) -> Question:
    return question_of(SharePartitionKey(group_id, topic_id, partition["partition"]), partition)


def _refusal(services: KafkaServices, context: RequestContext) -> Answer | None:
    if services.authorizer.rights_of(context).may_cluster(AclOperation.CLUSTER_ACTION):
        return None
    return Answer(
        errors_pb2.CLUSTER_AUTHORIZATION_FAILED, "only brokers may ask for states of share groups"
    )


def _batch(message: Message) -> StateBatch:
    state = _STATES.get(message["delivery_state"], RecordState.AVAILABLE)
    return StateBatch(
        message["first_offset"], message["last_offset"], state, message["delivery_count"]
    )


def _write(key: SharePartitionKey, message: Message) -> Question:
    return Write(
        key,
        StateWrite(
            message["state_epoch"],
            message["leader_epoch"],
            message["start_offset"],
            message.get("delivery_complete_count", UNKNOWN_COUNT),
            [batch for batch in map(_batch, message["state_batches"]) if batch.first <= batch.last],
        ),
    )


def _state(answer: Answer) -> Message:
    return {
        "state_epoch": answer.state_epoch,
        "start_offset": answer.start_offset,
        "state_batches": [
            {
                "first_offset": batch.first,
                "last_offset": batch.last,
                "delivery_state": batch.state.value,
                "delivery_count": batch.delivery_count,
            }
            for batch in answer.batches
        ],
    }


def _summary(answer: Answer) -> Message:
    return {
        "state_epoch": answer.state_epoch,
        "leader_epoch": answer.leader_epoch,
        "start_offset": answer.start_offset,
        "delivery_complete_count": answer.final_records,
    }


def _nothing(_: Answer) -> Message:
    return {}


initialize: Final = _handler(
    lambda key, one: Initialize(key, one["state_epoch"], one["start_offset"]), _nothing
)
read: Final = _handler(lambda key, one: Read(key, one["leader_epoch"]), _state)
write: Final = _handler(_write, _nothing)
delete: Final = _handler(lambda key, _: Delete(key), _nothing)
summarize: Final = _handler(lambda key, _: Summarize(key), _summary)
