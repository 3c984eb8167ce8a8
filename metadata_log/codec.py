"""Wire forms: transactions as MessagePack; results and what snapshots carry as protobuf.

A transaction is written once and read on every voter and broker, so its wire form is the one that
turns into our frozen values fastest: MessagePack, decoded straight into the classes of ``records``
with every type, range and tag checked. Two bytes stand in front: the format, and who wrote it. The
voter that takes a transaction sets the second byte, so that a client cannot pass for the quorum. It
also puts the id of the broker behind it whose certificate brought the transaction, so that a broker
cannot pass for another.

Results, and the values that snapshots and control requests carry, are protobuf messages. Decoded
replica lists are interned, so that a hundred thousand partitions share a few tuples.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from quorate.common.types import (
    NO_BROKER,
    BrokerId,
    Endpoint,
    MetadataOffset,
    SessionId,
    TopicId,
    VoterId,
)
from quorate.metadata_log import records as r
from quorate.metadata_log.image import PipelineState
from quorate.metadata_log.partitions import interned
from quorate.metadata_log.records import (
    Operation,
    OperationResult,
    ResultCode,
    Transaction,
    TransactionResult,
)
from quorate_proto.v1 import metadata_pb2 as pb

FORMAT: Final = 1
_BY_QUORUM: Final = bytes([FORMAT, 0])
_BY_CLIENT: Final = bytes([FORMAT, 1])
_BY_BROKER: Final = bytes([FORMAT, 2])
_BROKER_ID_BYTES: Final = 4

_force: Final = msgspec.structs.force_setattr
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Transaction)


class MalformedTransaction(ValueError):
    """Bytes that are not a transaction this version understands."""


def encode_transaction(transaction: Transaction) -> bytes:
    """Encode the transaction as the command of one Raft entry."""
    head = _BY_CLIENT if transaction.from_client else _BY_QUORUM
    if transaction.writer != NO_BROKER:
        head = _by_broker(transaction.writer)
    return head + _ENCODER.encode(transaction)


def encoded_bytes(operation: Operation) -> int:
    """Return how many bytes the operation adds to the encoded size of its transaction."""
    return len(_ENCODER.encode(operation))


def _by_broker(writer: BrokerId) -> bytes:
    return _BY_BROKER + writer.to_bytes(_BROKER_ID_BYTES)


def as_of_client(encoded: bytes, writer: BrokerId | None = None) -> bytes:
    """Mark the encoded transaction as a client's, whatever it says about its writer.

    ``writer`` is the broker whose certificate the client has shown, or None if it has shown none.
    """
    if writer is not None:
        return encoded[:1] + _by_broker(writer)[1:] + encoded[2:]
    if encoded.startswith(_BY_CLIENT):
        return encoded
    return encoded[:1] + _BY_CLIENT[1:] + encoded[2:]


def decode_transaction(encoded: bytes) -> Transaction:
    """Decode a transaction.

    Raises:
        MalformedTransaction: the bytes are no transaction, or a record or condition is
            of an unknown kind.
    """
    writer, body_at = NO_BROKER, 2
    by_client = encoded.startswith(_BY_CLIENT)
    if not by_client and encoded.startswith(_BY_BROKER):
        by_client, body_at = True, 2 + _BROKER_ID_BYTES
        writer = BrokerId(int.from_bytes(encoded[2:body_at]))
    elif not by_client and not encoded.startswith(_BY_QUORUM):
        raise MalformedTransaction(_what_is_wrong_with(encoded[:2]))
    try:
        transaction = _DECODER.decode(encoded[body_at:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedTransaction(f"{len(encoded)} bytes are no transaction: {error}") from error
    if by_client and not transaction.from_client:
        _force(transaction, "from_client", True)  # No other code has seen it yet.
    if transaction.writer != writer:
        _force(transaction, "writer", writer)
    return transaction


def _what_is_wrong_with(head: bytes) -> str:
    if len(head) < 2:
        return f"{len(head)} bytes are no transaction"
    if head[0] != FORMAT:
        return f"a transaction of format {head[0]}, this version reads {FORMAT}"
    return f"a transaction of writer {head[1]}, which this version does not know"


def result_to_proto(result: TransactionResult) -> pb.TransactionResult:
    return pb.TransactionResult(
        offset=result.offset,
        results=[
            pb.OperationResult(
                code=one.code.value,  # type: ignore[arg-type]  # The same numbers.
                detail=one.detail,
                version=one.version,
            )
            for one in result.results
        ],
    )


def result_from_proto(message: pb.TransactionResult) -> TransactionResult:
    return TransactionResult(
        offset=MetadataOffset(message.offset),
        results=tuple(
            OperationResult(code=ResultCode(one.code), detail=one.detail, version=one.version)
            for one in message.results
        ),
    )


# --- values of snapshots and control requests ---------------------------------------------------


def encode_session(record: r.SessionOpened) -> pb.SessionOpened:
    return pb.SessionOpened(
        session_id=record.session_id,
        timeout_ms=record.timeout_ms,
        description=record.description,
        broker_id=None if record.broker_id == NO_BROKER else record.broker_id,
    )


def decode_session(message: pb.SessionOpened) -> r.SessionOpened:
    return r.SessionOpened(
        session_id=SessionId(message.session_id),
        timeout_ms=message.timeout_ms,
        description=message.description,
        broker_id=BrokerId(message.broker_id) if message.HasField("broker_id") else NO_BROKER,
    )


def encode_silence(silence: r.SessionSilence) -> pb.SessionSilence:
    return pb.SessionSilence(session_id=silence.session_id, quarters=silence.quarters)


def decode_silence(message: pb.SessionSilence) -> r.SessionSilence:
    return r.SessionSilence(session_id=SessionId(message.session_id), quarters=message.quarters)


def encode_endpoint(endpoint: Endpoint) -> pb.Endpoint:
    return pb.Endpoint(host=endpoint.host, port=endpoint.port)


def decode_endpoint(message: pb.Endpoint) -> Endpoint:
    return Endpoint(message.host, message.port)


def encode_listener(listener: r.Listener) -> pb.Listener:
    return pb.Listener(name=listener.name, endpoint=encode_endpoint(listener.endpoint))


def decode_listener(message: pb.Listener) -> r.Listener:
    return r.Listener(name=message.name, endpoint=decode_endpoint(message.endpoint))


def encode_registration(record: r.BrokerRegistration) -> pb.BrokerRegistration:
    return pb.BrokerRegistration(
        broker_id=record.broker_id,
        session_id=record.session_id,
        incarnation_id=record.incarnation_id,
        kafka=encode_endpoint(record.kafka),
        grpc=encode_endpoint(record.grpc),
        rack=record.rack,
        log_may_be_lost=record.log_may_be_lost,
        inter_broker_protocol_max=record.inter_broker_protocol_max,
        metadata_version_max=record.metadata_version_max,
        listeners=map(encode_listener, record.listeners),
        inter_broker=None if record.inter_broker is None else encode_endpoint(record.inter_broker),
    )


def decode_registration(message: pb.BrokerRegistration) -> r.BrokerRegistration:
    return r.BrokerRegistration(
        broker_id=BrokerId(message.broker_id),
        session_id=SessionId(message.session_id),
        incarnation_id=message.incarnation_id,
        kafka=decode_endpoint(message.kafka),
        grpc=decode_endpoint(message.grpc),
        rack=message.rack,
        log_may_be_lost=message.log_may_be_lost,
        inter_broker_protocol_max=message.inter_broker_protocol_max,
        metadata_version_max=max(1, message.metadata_version_max),
        listeners=tuple(map(decode_listener, message.listeners)),
        inter_broker=(
            decode_endpoint(message.inter_broker) if message.HasField("inter_broker") else None
        ),
    )


def brokers(ids: Iterable[int]) -> tuple[BrokerId, ...]:
    """Return broker ids from the wire as a shared tuple."""
    return interned(tuple(map(BrokerId, ids)))


def encode_voter(voter: r.QuorumVoter) -> pb.QuorumVoter:
    return pb.QuorumVoter(
        voter_id=voter.voter_id,
        raft=encode_endpoint(voter.raft),
        grpc=encode_endpoint(voter.grpc),
        directory_id=voter.directory_id,
        observer=voter.observer,
    )


def decode_voter(message: pb.QuorumVoter) -> r.QuorumVoter:
    return r.QuorumVoter(
        voter_id=VoterId(message.voter_id),
        raft=decode_endpoint(message.raft),
        grpc=decode_endpoint(message.grpc),
        directory_id=message.directory_id,
        observer=message.observer,
    )


def encode_lost_replica(lost: r.LostReplica) -> pb.LostReplica:
    return pb.LostReplica(topic_id=lost.topic_id, partition=lost.partition)


def decode_lost_replica(message: pb.LostReplica) -> r.LostReplica:
    return r.LostReplica(topic_id=TopicId(message.topic_id), partition=message.partition)


def encode_pipeline(name: str, pipeline: PipelineState) -> pb.PipelineState:
    run = pipeline.run
    return pb.PipelineState(
        name=name,
        version=pipeline.version,
        run_epoch=pipeline.run_epoch,
        sink=pipeline.sink,
        topics=[
            pb.PipelineTopic(topic=one.topic, topic_id=one.topic_id, offsets=one.offsets)
            for one in pipeline.topics
        ],
        run=pb.PipelineRun(
            owner=run.owner,
            started_ms=run.started_ms,
            lease_until_ms=run.lease_until_ms,
            commit_epoch=run.commit_epoch,
            commit=run.commit,
            committed_ms=run.committed_ms,
            rows=run.rows,
        ),
        rewound=pipeline.rewound,
    )


def decode_pipeline(message: pb.PipelineState) -> PipelineState:
    run = message.run
    return PipelineState(
        message.run_epoch,
        message.sink,
        tuple(map(decode_pipeline_topic, message.topics)),
        r.PipelineRun(
            owner=run.owner,
            started_ms=run.started_ms,
            lease_until_ms=run.lease_until_ms,
            commit_epoch=run.commit_epoch,
            commit=run.commit,
            committed_ms=run.committed_ms,
            rows=run.rows,
        ),
        message.rewound,
        MetadataOffset(message.version),
    )


def decode_pipeline_topic(message: pb.PipelineTopic) -> r.PipelineTopicOffsets:
    return r.PipelineTopicOffsets(
        topic=message.topic, topic_id=TopicId(message.topic_id), offsets=tuple(message.offsets)
    )
