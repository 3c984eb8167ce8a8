"""Builds an image from the records of a snapshot. Only header and topics must come in order."""

from collections.abc import Callable
from typing import Any, Final

import immutables
import msgspec

from quorate.common.types import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    MetadataOffset,
    SessionId,
    TopicId,
)
from quorate.metadata_log.acls import AclEntry, AclPattern
from quorate.metadata_log.client_quotas import ClientQuotaEntity
from quorate.metadata_log.codec import (
    brokers,
    decode_lost_replica,
    decode_pipeline,
    decode_registration,
    decode_session,
    decode_silence,
    decode_voter,
    result_from_proto,
)
from quorate.metadata_log.deleted_topics import ENTRY_BYTES, PAGE_TOPICS, DeletedTopics
from quorate.metadata_log.image import (
    Broker,
    BrokerHistory,
    ClientResults,
    ControllerState,
    DelegationTokenState,
    EntityKey,
    Image,
    PipelineState,
    ScramKey,
    VoterSet,
)
from quorate.metadata_log.partitions import (
    PartitionAddition,
    PartitionRemoval,
    Reassignment,
    RemovedPartitions,
    Topic,
    TopicDeletion,
)
from quorate.metadata_log.records import ScramCredential, SessionOpened
from quorate.metadata_log.snapshot.partition_columns import (
    ColumnsDecoder,
    TopicBlocks,
    TopicLeaves,
)
from quorate_proto.v1 import metadata_pb2 as pb

FORMAT: Final = 2


class InvalidSnapshot(ValueError):
    """A snapshot is truncated, malformed or of another format."""


class SnapshotBuilder:
    """Collects the records of one snapshot; its methods raise ``InvalidSnapshot``."""

    def __init__(self, *, packed: bool = False) -> None:
        """Create the builder. ``packed`` makes ``PackedPartitions``, which a voter holds."""
        self._header: pb.SnapshotHeader | None = None
        self._whole = False
        self._count = 0
        self._controller: ControllerState | None = None
        self._voter_set = VoterSet()
        self._sessions: dict[SessionId, SessionOpened] = {}
        self._silences: dict[SessionId, int] = {}
        self._brokers: dict[BrokerId, Broker] = {}
        self._histories: dict[BrokerId, BrokerHistory] = {}
        self._deleted_topics: list[bytes] = []
        self._columns = ColumnsDecoder()
        self._partitions_of = TopicBlocks if packed else TopicLeaves
        self._topics: dict[str, tuple[Topic, TopicLeaves | TopicBlocks]] = {}
        self._deletions: dict[str, TopicDeletion] = {}
        self._reassignments: dict[str, dict[int, Reassignment]] = {}
        self._additions: dict[str, PartitionAddition] = {}
        self._removals: dict[str, PartitionRemoval] = {}
        self._acls: dict[AclPattern, dict[str, set[AclEntry]]] = {}
        self._features: dict[str, int] = {}
        self._client_quotas: dict[ClientQuotaEntity, dict[str, float]] = {}
        self._scram: dict[ScramKey, ScramCredential] = {}
        self._tokens: dict[str, DelegationTokenState] = {}
        self._pipelines: dict[str, PipelineState] = {}
        self._configs: dict[EntityKey, dict[str, str]] = {}
        self._results: dict[SessionId, tuple[int, dict[int, pb.TransactionResult]]] = {}

    def add(self, record: pb.SnapshotRecord) -> None:
        """Take the next record."""
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
        """Return the image, once the footer was added."""
        if self._header is None or not self._whole:
            raise InvalidSnapshot(f"the snapshot ends after {self._count} records, no footer")
        return Image(
            offset=MetadataOffset(self._header.offset),
            controller=self._controller,
            controller_epoch=ControllerEpoch(self._header.controller_epoch),
            next_producer_id=self._header.next_producer_id,
            voter_set=self._voter_set,
            restored_offset=MetadataOffset(self._header.restored_offset),
            administered=MetadataOffset(self._header.administered),
            scram_decoy_key=self._header.scram_decoy_key,
            sessions=immutables.Map(self._sessions),
            silences=immutables.Map(self._silences),
            brokers=immutables.Map(self._brokers),
            histories=immutables.Map(self._histories),
            deleted_topics=DeletedTopics(tuple(self._deleted_topics)),
            topics=immutables.Map(
                {
                    name: msgspec.structs.replace(topic, partitions=partitions.finished())
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
            acls=immutables.Map(
                {
                    pattern: immutables.Map(
                        {principal: frozenset(entries) for principal, entries in found.items()}
                    )
                    for pattern, found in self._acls.items()
                }
            ),
            configs=immutables.Map(
                {entity: immutables.Map(values) for entity, values in self._configs.items()}
            ),
            features=immutables.Map(self._features),
            client_quotas=immutables.Map(
                {entity: immutables.Map(quotas) for entity, quotas in self._client_quotas.items()}
            ),
            scram=immutables.Map(self._scram),
            tokens=immutables.Map(self._tokens),
            pipelines=immutables.Map(self._pipelines),
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

    def _add_acl(self, state: pb.AclState) -> None:
        pattern = AclPattern(state.resource_type, state.pattern_type, state.resource_name)
        entry = AclEntry(state.principal, state.host, state.operation, state.permission)
        self._acls.setdefault(pattern, {}).setdefault(entry.principal, set()).add(entry)

    def _add_config(self, state: pb.ConfigState) -> None:
        entity = EntityKey((state.entity_type, state.entity_name))
        self._configs.setdefault(entity, {})[state.key] = state.value

    def _add_feature(self, state: pb.FeatureLevel) -> None:
        self._features[state.name] = state.level

    def _add_client_quota(self, state: pb.ClientQuotaState) -> None:
        entity = ClientQuotaEntity(
            state.user if state.HasField("user") else None,
            state.client_id if state.HasField("client_id") else None,
            state.ip if state.HasField("ip") else None,
        )
        self._client_quotas.setdefault(entity, {})[state.key] = state.value

    def _add_scram(self, state: pb.ScramCredentialState) -> None:
        self._scram[ScramKey(state.user, state.mechanism)] = ScramCredential(
            salt=state.salt,
            stored_key=state.stored_key,
            server_key=state.server_key,
            iterations=state.iterations,
        )

    def _add_token(self, state: pb.DelegationTokenState) -> None:
        self._tokens[state.token_id] = DelegationTokenState(
            state.owner,
            state.requester,
            tuple(state.renewers),
            state.issue_ms,
            state.expiry_ms,
            state.max_ms,
            MetadataOffset(state.version),
        )

    def _add_pipeline(self, state: pb.PipelineState) -> None:
        self._pipelines[state.name] = decode_pipeline(state)

    def _add_broker(self, state: pb.BrokerState) -> None:
        registration = decode_registration(state.registration)
        lost = tuple(map(decode_lost_replica, state.lost))
        broker = Broker(registration, BrokerEpoch(state.broker_epoch), state.admitted, lost)
        self._brokers[registration.broker_id] = broker

    def _add_history(self, state: pb.BrokerHistoryState) -> None:
        self._histories[BrokerId(state.broker_id)] = BrokerHistory(
            state.incarnation_id, BrokerEpoch(state.broker_epoch), state.mark
        )

    def _add_deleted_topics(self, state: pb.DeletedTopicsState) -> None:
        size = len(state.page)
        if not size or size % ENTRY_BYTES or size > PAGE_TOPICS * ENTRY_BYTES:
            raise InvalidSnapshot(f"{size} bytes are no page of deleted topics")
        self._deleted_topics.append(state.page)

    def _add_controller(self, state: pb.ControllerState) -> None:
        self._controller = ControllerState(
            BrokerId(state.broker_id),
            SessionId(state.session_id),
            state.timestamp_ms,
            MetadataOffset(state.version),
        )

    def _add_voter_set(self, state: pb.VoterSetState) -> None:
        self._voter_set = VoterSet(tuple(map(decode_voter, state.voters)), state.version)

    def _add_topic(self, state: pb.TopicState) -> None:
        known = self._topics.get(state.name)
        if known is None:
            known = _without_partitions(state), self._partitions_of(self._columns)
            self._topics[state.name] = known
        partitions = known[1]
        if state.first_partition != partitions.count:
            raise InvalidSnapshot(
                f"partition {state.first_partition} of topic {state.name} follows "
                f"{partitions.count} partitions"
            )
        try:
            partitions.add(state.partitions)
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
            RemovedPartitions(one.first_partition, MetadataOffset(one.offset))
            for one in state.removals
        ),
    )


# Not in the builder: its bound methods would form a cycle, and keep the whole image in memory.
_ADDERS: Final[dict[str, Callable[[SnapshotBuilder, Any], None]]] = {
    "header": SnapshotBuilder._check_header,
    "session": SnapshotBuilder._add_session,
    "silence": SnapshotBuilder._add_silence,
    "broker": SnapshotBuilder._add_broker,
    "history": SnapshotBuilder._add_history,
    "deleted_topics": SnapshotBuilder._add_deleted_topics,
    "controller": SnapshotBuilder._add_controller,
    "topic": SnapshotBuilder._add_topic,
    "deletion": SnapshotBuilder._add_deletion,
    "reassignment": SnapshotBuilder._add_reassignment,
    "addition": SnapshotBuilder._add_addition,
    "removal": SnapshotBuilder._add_removal,
    "acl": SnapshotBuilder._add_acl,
    "config": SnapshotBuilder._add_config,
    "feature": SnapshotBuilder._add_feature,
    "client_quota": SnapshotBuilder._add_client_quota,
    "scram": SnapshotBuilder._add_scram,
    "result": SnapshotBuilder._add_result,
    "token": SnapshotBuilder._add_token,
    "pipeline": SnapshotBuilder._add_pipeline,
    "voter_set": SnapshotBuilder._add_voter_set,
}
