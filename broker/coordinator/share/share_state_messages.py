"""Questions to the share coordinator, and their answers, between brokers."""

from collections.abc import Iterable
from typing import Final

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
from quorate.broker.coordinator.share.state.stored_state import SharePartitionKey, StateWrite
from quorate.common.types import TopicId
from quorate_proto.v1 import share_states_pb2 as pb

_STATES: Final = {state.value: state for state in RecordState}


def question_message(question: Question) -> pb.ShareStateQuestion:
    """Return a question in the form in which it is sent."""
    key = question.key
    message = pb.ShareStateQuestion(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
    )
    match question:
        case Initialize(_, state_epoch, start_offset):
            message.initialize.state_epoch = state_epoch
            message.initialize.start_offset = start_offset
        case Read(_, leader_epoch):
            message.read.leader_epoch = leader_epoch
        case Write(_, write):
            message.write.CopyFrom(
                pb.WriteShareState(
                    state_epoch=write.state_epoch,
                    leader_epoch=write.leader_epoch,
                    start_offset=write.start_offset,
                    final_records=write.final_records,
                    batches=map(_batch_message, write.batches),
                )
            )
        case Delete():
            message.delete.SetInParent()
        case Summarize():
            message.summarize.SetInParent()
    return message


def question_of(message: pb.ShareStateQuestion) -> Question:
    """Return the question that was sent."""
    key = SharePartitionKey(message.group_id, TopicId(message.topic_id), message.partition)
    match message.WhichOneof("what"):
        case "initialize":
            asked = message.initialize
            return Initialize(key, asked.state_epoch, asked.start_offset)
        case "read":
            return Read(key, message.read.leader_epoch)
        case "write":
            write = message.write
            return Write(
                key,
                StateWrite(
                    write.state_epoch,
                    write.leader_epoch,
                    write.start_offset,
                    write.final_records,
                    tuple(batches_of(write.batches)),
                ),
            )
        case "delete":
            return Delete(key)
    return Summarize(key)


def answer_message(answer: Answer) -> pb.ShareStateAnswer:
    """Return an answer in the form in which it is sent."""
    return pb.ShareStateAnswer(
        error_code=answer.error_code,
        error_message=answer.error_message,
        state_epoch=answer.state_epoch,
        leader_epoch=answer.leader_epoch,
        start_offset=answer.start_offset,
        final_records=answer.final_records,
        batches=map(_batch_message, answer.batches),
    )


def answer_of(message: pb.ShareStateAnswer) -> Answer:
    """Return the answer that was sent."""
    return Answer(
        message.error_code,
        message.error_message,
        message.state_epoch,
        message.leader_epoch,
        message.start_offset,
        message.final_records,
        tuple(batches_of(message.batches)),
    )


def batches_of(messages: Iterable[pb.ShareStateBatch]) -> Iterable[StateBatch]:
    """Yield the batches; a state that this version does not know counts as available."""
    for one in messages:
        state = _STATES.get(one.delivery_state, RecordState.AVAILABLE)
        yield StateBatch(one.first_offset, one.last_offset, state, one.delivery_count)


def _batch_message(batch: StateBatch) -> pb.ShareStateBatch:
    return pb.ShareStateBatch(
        first_offset=batch.first,
        last_offset=batch.last,
        delivery_state=batch.state,
        delivery_count=batch.delivery_count,
    )
