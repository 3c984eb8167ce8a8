"""Wire form of records: protobuf, one encoder and one decoder per record.

Decoded replica lists are interned, so that a hundred thousand partitions share a few tuples.
"""

from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.message import Message

from metadata_log import records as r
from metadata_log.image import interned
from metadata_log.types import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    SessionId,
    TopicId,
    VoterId,
)
from quorate_proto.v1 import metadata_pb2 as pb


class MalformedTransaction(ValueError):
    """Bytes that are not a transaction this version understands."""


def encode_record(record: r.Record) -> pb.Record:
    field, encode, _ = _CODECS[type(record)]
    encoded: Any = {field: encode(record)}
    return pb.Record(**encoded)


def decode_record(message: pb.Record) -> r.Record:
    """The record in ``message``.

    Raises:
        MalformedTransaction: its kind is unknown to this version.
    """
    kind = message.WhichOneof("kind")
    if kind is None:
        raise MalformedTransaction("a record of a kind this version does not know")
    record: r.Record = _DECODERS[kind](getattr(message, kind))
    return record


def encode_session(record: r.SessionOpened) -> pb.SessionOpened:
    return pb.SessionOpened(
        session_id=record.session_id, timeout_ms=record.timeout_ms, description=record.description
    )


def decode_session(message: pb.SessionOpened) -> r.SessionOpened:
    return r.SessionOpened(
        session_id=SessionId(message.session_id),
        timeout_ms=message.timeout_ms,
        description=message.description,
    )


def encode_endpoint(endpoint: Endpoint) -> pb.Endpoint:
    return pb.Endpoint(host=endpoint.host, port=endpoint.port)


def decode_endpoint(message: pb.Endpoint) -> Endpoint:
    return Endpoint(message.host, message.port)


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
    )


def brokers(ids: Iterable[int]) -> tuple[BrokerId, ...]:
    """Broker ids from the wire as a shared tuple."""
    return interned(tuple(map(BrokerId, ids)))


def _encode_session_closed(record: r.SessionClosed) -> pb.SessionClosed:
    return pb.SessionClosed(session_id=record.session_id, reason=record.reason)


def _decode_session_closed(message: pb.SessionClosed) -> r.SessionClosed:
    return r.SessionClosed(session_id=SessionId(message.session_id), reason=message.reason)


def _encode_claim(record: r.ControllerClaim) -> pb.ControllerClaim:
    return pb.ControllerClaim(
        broker_id=record.broker_id,
        session_id=record.session_id,
        timestamp_ms=record.timestamp_ms,
        controller_epoch=record.controller_epoch,
    )


def _decode_claim(message: pb.ControllerClaim) -> r.ControllerClaim:
    return r.ControllerClaim(
        broker_id=BrokerId(message.broker_id),
        session_id=SessionId(message.session_id),
        timestamp_ms=message.timestamp_ms,
        controller_epoch=ControllerEpoch(message.controller_epoch),
    )


def _encode_controller_removed(record: r.ControllerRemoved) -> pb.ControllerRemoved:
    return pb.ControllerRemoved(broker_id=record.broker_id)


def _decode_controller_removed(message: pb.ControllerRemoved) -> r.ControllerRemoved:
    return r.ControllerRemoved(broker_id=BrokerId(message.broker_id))


def _encode_admitted(record: r.BrokerAdmitted) -> pb.BrokerAdmitted:
    return pb.BrokerAdmitted(broker_id=record.broker_id, broker_epoch=record.broker_epoch)


def _decode_admitted(message: pb.BrokerAdmitted) -> r.BrokerAdmitted:
    return r.BrokerAdmitted(
        broker_id=BrokerId(message.broker_id), broker_epoch=BrokerEpoch(message.broker_epoch)
    )


def _encode_topic_created(record: r.TopicCreated) -> pb.TopicCreated:
    return pb.TopicCreated(
        name=record.name,
        topic_id=record.topic_id,
        partitions=[
            pb.NewPartition(replicas=new.replicas, leader=new.leader, isr=new.isr)
            for new in record.partitions
        ],
        controller_id=record.controller_id,
        controller_epoch=record.controller_epoch,
    )


def _decode_topic_created(message: pb.TopicCreated) -> r.TopicCreated:
    return r.TopicCreated(
        name=message.name,
        topic_id=TopicId(message.topic_id),
        partitions=tuple(
            r.NewPartition(
                replicas=brokers(new.replicas),
                leader=BrokerId(new.leader),
                isr=brokers(new.isr),
            )
            for new in message.partitions
        ),
        controller_id=BrokerId(message.controller_id),
        controller_epoch=ControllerEpoch(message.controller_epoch),
    )


def _encode_topic_removed(record: r.TopicRemoved) -> pb.TopicRemoved:
    return pb.TopicRemoved(name=record.name, topic_id=record.topic_id)


def _decode_topic_removed(message: pb.TopicRemoved) -> r.TopicRemoved:
    return r.TopicRemoved(name=message.name, topic_id=TopicId(message.topic_id))


def _encode_deletion(record: r.TopicDeletionPending) -> pb.TopicDeletionPending:
    return pb.TopicDeletionPending(name=record.name, topic_id=record.topic_id)


def _decode_deletion(message: pb.TopicDeletionPending) -> r.TopicDeletionPending:
    return r.TopicDeletionPending(name=message.name, topic_id=TopicId(message.topic_id))


def _encode_partition_change(record: r.PartitionChange) -> pb.PartitionChange:
    return pb.PartitionChange(
        topic=record.topic,
        topic_id=record.topic_id,
        partition=record.partition,
        expected_version=record.expected_version,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        isr=record.isr,
        controller_id=record.controller_id,
        controller_epoch=record.controller_epoch,
    )


def _decode_partition_change(message: pb.PartitionChange) -> r.PartitionChange:
    return r.PartitionChange(
        topic=message.topic,
        topic_id=TopicId(message.topic_id),
        partition=message.partition,
        expected_version=message.expected_version,
        leader=BrokerId(message.leader),
        leader_epoch=LeaderEpoch(message.leader_epoch),
        isr=brokers(message.isr),
        controller_id=BrokerId(message.controller_id),
        controller_epoch=ControllerEpoch(message.controller_epoch),
    )


def _encode_isr_change(record: r.IsrChange) -> pb.IsrChange:
    return pb.IsrChange(
        topic=record.topic,
        topic_id=record.topic_id,
        partition=record.partition,
        expected_version=record.expected_version,
        leader=record.leader,
        leader_broker_epoch=record.leader_broker_epoch,
        leader_epoch=record.leader_epoch,
        isr=[
            pb.IsrMember(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
            for member in record.isr
        ],
    )


def _decode_isr_change(message: pb.IsrChange) -> r.IsrChange:
    return r.IsrChange(
        topic=message.topic,
        topic_id=TopicId(message.topic_id),
        partition=message.partition,
        expected_version=message.expected_version,
        leader=BrokerId(message.leader),
        leader_broker_epoch=BrokerEpoch(message.leader_broker_epoch),
        leader_epoch=LeaderEpoch(message.leader_epoch),
        isr=tuple(
            r.IsrMember(
                broker_id=BrokerId(member.broker_id),
                broker_epoch=BrokerEpoch(member.broker_epoch),
            )
            for member in message.isr
        ),
    )


def _encode_config(record: r.ConfigSet) -> pb.ConfigSet:
    return pb.ConfigSet(
        entity_type=record.entity_type,
        entity_name=record.entity_name,
        key=record.key,
        value=record.value,
    )


def _decode_config(message: pb.ConfigSet) -> r.ConfigSet:
    return r.ConfigSet(
        entity_type=message.entity_type,
        entity_name=message.entity_name,
        key=message.key,
        value=message.value if message.HasField("value") else None,
    )


def _encode_feature(record: r.FeatureLevel) -> pb.FeatureLevel:
    return pb.FeatureLevel(name=record.name, level=record.level)


def _decode_feature(message: pb.FeatureLevel) -> r.FeatureLevel:
    return r.FeatureLevel(name=message.name, level=message.level)


def _encode_producer_ids(record: r.ProducerIdBlock) -> pb.ProducerIdBlock:
    return pb.ProducerIdBlock(next_producer_id=record.next_producer_id)


def _decode_producer_ids(message: pb.ProducerIdBlock) -> r.ProducerIdBlock:
    return r.ProducerIdBlock(next_producer_id=message.next_producer_id)


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


def _encode_voter_set(record: r.QuorumVoterSet) -> pb.QuorumVoterSet:
    return pb.QuorumVoterSet(
        expected_version=record.expected_version, voters=map(encode_voter, record.voters)
    )


def _decode_voter_set(message: pb.QuorumVoterSet) -> r.QuorumVoterSet:
    return r.QuorumVoterSet(
        expected_version=message.expected_version,
        voters=tuple(map(decode_voter, message.voters)),
    )


_CODECS: dict[type, tuple[str, Callable[[Any], Message], Callable[[Any], Any]]] = {
    r.SessionOpened: ("session_opened", encode_session, decode_session),
    r.SessionClosed: ("session_closed", _encode_session_closed, _decode_session_closed),
    r.ControllerClaim: ("controller_claim", _encode_claim, _decode_claim),
    r.ControllerRemoved: (
        "controller_removed",
        _encode_controller_removed,
        _decode_controller_removed,
    ),
    r.BrokerRegistration: ("broker_registration", encode_registration, decode_registration),
    r.BrokerAdmitted: ("broker_admitted", _encode_admitted, _decode_admitted),
    r.TopicCreated: ("topic_created", _encode_topic_created, _decode_topic_created),
    r.TopicRemoved: ("topic_removed", _encode_topic_removed, _decode_topic_removed),
    r.TopicDeletionPending: ("topic_deletion_pending", _encode_deletion, _decode_deletion),
    r.PartitionChange: ("partition_change", _encode_partition_change, _decode_partition_change),
    r.IsrChange: ("isr_change", _encode_isr_change, _decode_isr_change),
    r.ConfigSet: ("config_set", _encode_config, _decode_config),
    r.FeatureLevel: ("feature_level", _encode_feature, _decode_feature),
    r.ProducerIdBlock: ("producer_id_block", _encode_producer_ids, _decode_producer_ids),
    r.QuorumVoterSet: ("quorum_voter_set", _encode_voter_set, _decode_voter_set),
}

_DECODERS: dict[str, Callable[[Any], Any]] = {
    field: decode for field, _, decode in _CODECS.values()
}
