"""Snapshots: an image as a stream of length-prefixed records, and back.

A record is ``u32 big-endian length | SnapshotRecord``; the header comes first, the footer last. In
between only the order of topics matters, and chunks may be cut anywhere. A stream without its
footer, or with another count than the footer says, is refused: a truncated snapshot must never
become the state of a process (P11).
"""

from collections.abc import Iterable, Iterator
from typing import Final

from google.protobuf.message import DecodeError

from quorate.common.types import MetadataOffset
from quorate.metadata_log.acls import bindings
from quorate.metadata_log.codec import (
    encode_lost_replica,
    encode_pipeline,
    encode_registration,
    encode_session,
    encode_silence,
    encode_voter,
    result_to_proto,
)
from quorate.metadata_log.image import ControllerState, Image
from quorate.metadata_log.records import SessionSilence
from quorate.metadata_log.snapshot.builder import FORMAT, InvalidSnapshot, SnapshotBuilder
from quorate.metadata_log.snapshot.partition_columns import ColumnsEncoder
from quorate_proto.v1 import metadata_pb2 as pb

_LENGTH_BYTES: Final = 4


def encode_snapshot(image: Image, chunk_bytes: int = 1 << 20) -> Iterator[bytes]:
    """Yield the encoded image in chunks of about ``chunk_bytes``."""
    chunk = bytearray()
    count = 0
    for record in _records(image):
        _frame(chunk, record)
        count += 1
        if len(chunk) >= chunk_bytes:
            yield bytes(chunk)
            chunk.clear()
    _frame(chunk, pb.SnapshotRecord(footer=pb.SnapshotFooter(records=count)))
    yield bytes(chunk)


def decode_snapshot(chunks: Iterable[bytes], *, packed: bool = False) -> Image:
    """Decode the image in ``chunks``, however they were cut. ``packed`` is for voters: partitions
    are held as bytes.

    Raises:
        InvalidSnapshot: truncated, malformed, or of a format this version does not know.
    """
    builder = SnapshotBuilder(packed=packed)
    for record in _unframed(chunks):
        builder.add(record)
    return builder.finish()


def snapshot_offset(chunks: Iterable[bytes]) -> MetadataOffset:
    """Return the offset of the snapshot in ``chunks``. Only its beginning is read.

    Raises:
        InvalidSnapshot: it does not begin as one.
    """
    for record in _unframed(chunks):
        if record.HasField("header"):
            return MetadataOffset(record.header.offset)
        break
    raise InvalidSnapshot("the snapshot does not begin with its header")


def _frame(chunk: bytearray, record: pb.SnapshotRecord) -> None:
    encoded = record.SerializeToString()
    chunk += len(encoded).to_bytes(_LENGTH_BYTES, "big")
    chunk += encoded


def _unframed(chunks: Iterable[bytes]) -> Iterator[pb.SnapshotRecord]:
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        start = 0
        while len(buffer) - start >= _LENGTH_BYTES:
            body = start + _LENGTH_BYTES
            end = body + int.from_bytes(buffer[start:body], "big")
            if len(buffer) < end:
                break
            try:
                yield pb.SnapshotRecord.FromString(bytes(buffer[body:end]))
            except DecodeError as error:
                raise InvalidSnapshot(f"a record of the snapshot is malformed: {error}") from error
            start = end
        del buffer[:start]
    if buffer:
        raise InvalidSnapshot(f"the snapshot ends {len(buffer)} bytes into a record")


# --- records of an image ------------------------------------------------------------------------


def _records(image: Image) -> Iterator[pb.SnapshotRecord]:
    yield pb.SnapshotRecord(
        header=pb.SnapshotHeader(
            format=FORMAT,
            offset=image.offset,
            controller_epoch=image.controller_epoch,
            next_producer_id=image.next_producer_id,
            restored_offset=image.restored_offset,
            administered=image.administered,
            scram_decoy_key=image.scram_decoy_key,
        )
    )
    for session in image.sessions.values():
        yield pb.SnapshotRecord(session=encode_session(session))
    for session_id, quarters in image.silences.items():
        silence = SessionSilence(session_id=session_id, quarters=quarters)
        yield pb.SnapshotRecord(silence=encode_silence(silence))
    for broker in image.brokers.values():
        yield pb.SnapshotRecord(
            broker=pb.BrokerState(
                registration=encode_registration(broker.registration),
                broker_epoch=broker.epoch,
                admitted=broker.admitted,
                lost=map(encode_lost_replica, broker.lost),
            )
        )
    for broker_id, history in image.histories.items():
        yield pb.SnapshotRecord(
            history=pb.BrokerHistoryState(
                broker_id=broker_id,
                incarnation_id=history.incarnation_id,
                broker_epoch=history.epoch,
                mark=history.mark,
            )
        )
    for page in image.deleted_topics.pages:
        yield pb.SnapshotRecord(deleted_topics=pb.DeletedTopicsState(page=page))
    if image.controller is not None:
        yield pb.SnapshotRecord(controller=_controller_state(image.controller))
    yield from _topic_records(image)
    yield from _count_records(image)
    if image.voter_set.version:
        yield pb.SnapshotRecord(
            voter_set=pb.VoterSetState(
                voters=map(encode_voter, image.voter_set.voters), version=image.voter_set.version
            )
        )
    yield from _admin_records(image)
    yield from _token_records(image)
    for name, pipeline in image.pipelines.items():
        yield pb.SnapshotRecord(pipeline=encode_pipeline(name, pipeline))


def _topic_records(image: Image) -> Iterator[pb.SnapshotRecord]:
    columns = ColumnsEncoder()
    for topic in image.topics.values():
        for state in columns.states(topic):
            yield pb.SnapshotRecord(topic=state)
    for name, deletion in image.deletions.items():
        yield pb.SnapshotRecord(
            deletion=pb.TopicDeletionState(
                name=name, topic_id=deletion.topic_id, version=deletion.version
            )
        )
    for name, pending in image.reassignments.items():
        for number, reassignment in pending.items():
            yield pb.SnapshotRecord(
                reassignment=pb.ReassignmentState(
                    topic=name,
                    partition=number,
                    target=reassignment.target,
                    original=reassignment.original,
                    version=reassignment.version,
                )
            )


def _count_records(image: Image) -> Iterator[pb.SnapshotRecord]:
    """Yield the pending changes of topics' numbers of partitions."""
    for name, addition in image.additions.items():
        yield pb.SnapshotRecord(
            addition=pb.PartitionAdditionState(
                topic=name,
                topic_id=addition.topic_id,
                first_partition=addition.first_partition,
                replicas=[pb.BrokerIds(ids=one) for one in addition.replicas],
                version=addition.version,
            )
        )
    for name, removal in image.removals.items():
        yield pb.SnapshotRecord(
            removal=pb.PartitionRemovalState(
                topic=name,
                topic_id=removal.topic_id,
                first_partition=removal.first_partition,
                version=removal.version,
            )
        )


def _admin_records(image: Image) -> Iterator[pb.SnapshotRecord]:
    for (entity_type, entity_name), values in image.configs.items():
        for key, value in values.items():
            yield pb.SnapshotRecord(
                config=pb.ConfigState(
                    entity_type=entity_type, entity_name=entity_name, key=key, value=value
                )
            )
    for name, level in image.features.items():
        yield pb.SnapshotRecord(feature=pb.FeatureLevel(name=name, level=level))
    for (quota_user, client_id, ip), quotas in image.client_quotas.items():
        for key, limit in quotas.items():
            yield pb.SnapshotRecord(
                client_quota=pb.ClientQuotaState(
                    user=quota_user, client_id=client_id, ip=ip, key=key, value=limit
                )
            )
    for (user, mechanism), credential in image.scram.items():
        yield pb.SnapshotRecord(
            scram=pb.ScramCredentialState(
                user=user,
                mechanism=mechanism,
                salt=credential.salt,
                stored_key=credential.stored_key,
                server_key=credential.server_key,
                iterations=credential.iterations,
            )
        )
    for pattern, entry in bindings(image.acls):
        yield pb.SnapshotRecord(
            acl=pb.AclState(
                resource_type=pattern.resource_type,
                pattern_type=pattern.pattern_type,
                resource_name=pattern.name,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission=entry.permission,
            )
        )
    for client, kept in image.results.items():
        yield pb.SnapshotRecord(result=pb.ResultState(client_id=client, low_water=kept.low_water))
        for sequence, result in kept.by_sequence.items():
            yield pb.SnapshotRecord(
                result=pb.ResultState(
                    client_id=client,
                    low_water=kept.low_water,
                    sequence=sequence,
                    result=result_to_proto(result),
                )
            )


def _token_records(image: Image) -> Iterator[pb.SnapshotRecord]:
    for token_id, token in image.tokens.items():
        yield pb.SnapshotRecord(
            token=pb.DelegationTokenState(
                token_id=token_id,
                owner=token.owner,
                requester=token.requester,
                renewers=token.renewers,
                issue_ms=token.issue_ms,
                expiry_ms=token.expiry_ms,
                max_ms=token.max_ms,
                version=token.version,
            )
        )


def _controller_state(controller: ControllerState) -> pb.ControllerState:
    return pb.ControllerState(
        broker_id=controller.broker_id,
        session_id=controller.session_id,
        timestamp_ms=controller.timestamp_ms,
        version=controller.version,
    )
