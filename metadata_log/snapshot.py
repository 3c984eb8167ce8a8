"""Snapshots: an image as a stream of length-prefixed records, and back.

``u32 big-endian length | SnapshotRecord``, header first, footer last. In between only topics
depend on order, and chunks may be cut anywhere. A stream without its footer, or with another count
than the footer says, is refused: a truncated snapshot must never become somebody's state (P11).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import immutables
import msgspec
from google.protobuf.message import DecodeError

from metadata_log.codec import result_from_proto, result_to_proto
from metadata_log.image import (
    Broker,
    ClientResults,
    Controller,
    EntityKey,
    Image,
    Partition,
    PartitionAddition,
    PartitionRemoval,
    PastRemoval,
    Reassignment,
    Topic,
    TopicDeletion,
    VoterSet,
)
from metadata_log.partition_columns import ColumnsDecoder, ColumnsEncoder
from metadata_log.record_codec import (
    brokers,
    decode_registration,
    decode_session,
    decode_silence,
    decode_voter,
    encode_registration,
    encode_session,
    encode_silence,
    encode_voter,
)
from metadata_log.records import SessionOpened, SessionSilence
from metadata_log.types import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    MetadataOffset,
    SessionId,
    TopicId,
)
from quorate_proto.v1 import metadata_pb2 as pb

FORMAT: Final = 2
_LENGTH_BYTES: Final = 4


class InvalidSnapshot(ValueError):
    """A snapshot is truncated, malformed or of another format."""


def encode_snapshot(image: Image, chunk_bytes: int = 1 << 20) -> Iterator[bytes]:
    """The image as chunks of about ``chunk_bytes``."""
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


def decode_snapshot(chunks: Iterable[bytes]) -> Image:
    """The image in ``chunks``, however they were cut.

    Raises:
        InvalidSnapshot: truncated, malformed, or of a format this version does not know.
    """
    builder = _Builder()
    for record in _unframed(chunks):
        builder.add(record)
    return builder.finish()


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


# --- encoding -----------------------------------------------------------------------------------


def _records(image: Image) -> Iterator[pb.SnapshotRecord]:
    yield pb.SnapshotRecord(
        header=pb.SnapshotHeader(
            format=FORMAT,
            offset=image.offset,
            controller_epoch=image.controller_epoch,
            next_producer_id=image.next_producer_id,
            restored_offset=image.restored_offset,
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
            )
        )
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
    """Changes of topics' numbers of partitions that are pending."""
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


def _controller_state(controller: Controller) -> pb.ControllerState:
    return pb.ControllerState(
        broker_id=controller.broker_id,
        session_id=controller.session_id,
        timestamp_ms=controller.timestamp_ms,
        version=controller.version,
    )


# --- decoding -----------------------------------------------------------------------------------


class _Builder:
    """Collects the records of one snapshot."""

    def __init__(self) -> None:
        self._header: pb.SnapshotHeader | None = None
        self._whole = False
        self._count = 0
        self._controller: Controller | None = None
        self._voter_set = VoterSet()
        self._sessions: dict[SessionId, SessionOpened] = {}
        self._silences: dict[SessionId, int] = {}
        self._brokers: dict[BrokerId, Broker] = {}
        self._columns = ColumnsDecoder()
        self._topics: dict[str, tuple[Topic, list[Partition]]] = {}
        self._deletions: dict[str, TopicDeletion] = {}
        self._reassignments: dict[str, dict[int, Reassignment]] = {}
        self._additions: dict[str, PartitionAddition] = {}
        self._removals: dict[str, PartitionRemoval] = {}
        self._features: dict[str, int] = {}
        self._configs: dict[EntityKey, dict[str, str]] = {}
        self._results: dict[SessionId, tuple[int, dict[int, pb.TransactionResult]]] = {}

    def add(self, record: pb.SnapshotRecord) -> None:
        kind = record.WhichOneof("kind")
        if self._whole:
            raise InvalidSnapshot("the snapshot goes on after its footer")
        if (kind == "header") != (self._count == 0):
            raise InvalidSnapshot("the snapshot does not begin with its one header")
        if kind == "footer":
            self._check_footer(record.footer)
            return
        self._count += 1
        add = _ADDERS.get(kind or "")
        if add is None:
            raise InvalidSnapshot("a record of a kind this version does not know")
        add(self, getattr(record, kind or ""))

    def finish(self) -> Image:
        if self._header is None or not self._whole:
            raise InvalidSnapshot(f"the snapshot ends after {self._count} records, no footer")
        return Image(
            offset=MetadataOffset(self._header.offset),
            controller=self._controller,
            controller_epoch=ControllerEpoch(self._header.controller_epoch),
            next_producer_id=self._header.next_producer_id,
            voter_set=self._voter_set,
            restored_offset=MetadataOffset(self._header.restored_offset),
            sessions=immutables.Map(self._sessions),
            silences=immutables.Map(self._silences),
            brokers=immutables.Map(self._brokers),
            topics=immutables.Map(
                {
                    name: msgspec.structs.replace(topic, partitions=tuple(partitions))
                    for name, (topic, partitions) in self._topics.items()
                }
            ),
            topic_names=immutables.Map(
                {topic.topic_id: name for name, (topic, _) in self._topics.items()}
            ),
            deletions=immutables.Map(self._deletions),
            reassignments=immutables.Map(
                {name: immutables.Map(pending) for name, pending in self._reassignments.items()}
            ),
            additions=immutables.Map(self._additions),
            removals=immutables.Map(self._removals),
            configs=immutables.Map(
                {entity: immutables.Map(values) for entity, values in self._configs.items()}
            ),
            features=immutables.Map(self._features),
            results=immutables.Map(
                {
                    client: ClientResults(
                        low_water,
                        immutables.Map(
                            {s: result_from_proto(result) for s, result in kept.items()}
                        ),
                    )
                    for client, (low_water, kept) in self._results.items()
                }
            ),
        )

    def _check_header(self, header: pb.SnapshotHeader) -> None:
        if header.format != FORMAT:
            raise InvalidSnapshot(f"snapshot format {header.format}: this version reads {FORMAT}")
        self._header = header

    def _check_footer(self, footer: pb.SnapshotFooter) -> None:
        if footer.records != self._count:
            raise InvalidSnapshot(f"{self._count} records of {footer.records} are there")
        self._whole = True

    def _add_session(self, state: pb.SessionOpened) -> None:
        session = decode_session(state)
        self._sessions[session.session_id] = session

    def _add_silence(self, state: pb.SessionSilence) -> None:
        silence = decode_silence(state)
        self._silences[silence.session_id] = silence.quarters

    def _add_config(self, state: pb.ConfigState) -> None:
        entity = EntityKey((state.entity_type, state.entity_name))
        self._configs.setdefault(entity, {})[state.key] = state.value

    def _add_feature(self, state: pb.FeatureLevel) -> None:
        self._features[state.name] = state.level

    def _add_broker(self, state: pb.BrokerState) -> None:
        registration = decode_registration(state.registration)
        broker = Broker(registration, BrokerEpoch(state.broker_epoch), state.admitted)
        self._brokers[registration.broker_id] = broker

    def _add_controller(self, state: pb.ControllerState) -> None:
        self._controller = Controller(
            BrokerId(state.broker_id),
            SessionId(state.session_id),
            state.timestamp_ms,
            MetadataOffset(state.version),
        )

    def _add_voter_set(self, state: pb.VoterSetState) -> None:
        self._voter_set = VoterSet(tuple(map(decode_voter, state.voters)), state.version)

    def _add_topic(self, state: pb.TopicState) -> None:
        _, partitions = self._topics.setdefault(state.name, (_without_partitions(state), []))
        if state.first_partition != len(partitions):
            raise InvalidSnapshot(
                f"partition {state.first_partition} of topic {state.name} follows "
                f"{len(partitions)} partitions"
            )
        try:
            partitions += self._columns.partitions(state.partitions)
        except ValueError as error:
            raise InvalidSnapshot(f"partitions of topic {state.name}: {error}") from error

    def _add_deletion(self, state: pb.TopicDeletionState) -> None:
        deletion = TopicDeletion(TopicId(state.topic_id), MetadataOffset(state.version))
        self._deletions[state.name] = deletion

    def _add_addition(self, state: pb.PartitionAdditionState) -> None:
        self._additions[state.topic] = PartitionAddition(
            TopicId(state.topic_id),
            state.first_partition,
            tuple(brokers(one.ids) for one in state.replicas),
            MetadataOffset(state.version),
        )

    def _add_removal(self, state: pb.PartitionRemovalState) -> None:
        self._removals[state.topic] = PartitionRemoval(
            TopicId(state.topic_id), state.first_partition, MetadataOffset(state.version)
        )

    def _add_reassignment(self, state: pb.ReassignmentState) -> None:
        self._reassignments.setdefault(state.topic, {})[state.partition] = Reassignment(
            brokers(state.target), brokers(state.original), MetadataOffset(state.version)
        )

    def _add_result(self, state: pb.ResultState) -> None:
        client = SessionId(state.client_id)
        _, kept = self._results.setdefault(client, (state.low_water, {}))
        if state.HasField("result"):
            kept[state.sequence] = state.result


def _without_partitions(state: pb.TopicState) -> Topic:
    return Topic(
        state.name,
        TopicId(state.topic_id),
        (),
        MetadataOffset(state.version),
        LeaderEpoch(state.leader_epoch_floor),
        tuple(
            PastRemoval(one.first_partition, MetadataOffset(one.offset)) for one in state.removals
        ),
    )


# Not in the builder: bound methods there would be a cycle, and the whole image garbage for long.
_ADDERS: Final[dict[str, Callable[[_Builder, Any], None]]] = {
    "header": _Builder._check_header,
    "session": _Builder._add_session,
    "silence": _Builder._add_silence,
    "broker": _Builder._add_broker,
    "controller": _Builder._add_controller,
    "topic": _Builder._add_topic,
    "deletion": _Builder._add_deletion,
    "reassignment": _Builder._add_reassignment,
    "addition": _Builder._add_addition,
    "removal": _Builder._add_removal,
    "config": _Builder._add_config,
    "feature": _Builder._add_feature,
    "result": _Builder._add_result,
    "voter_set": _Builder._add_voter_set,
}
