"""A metadata log under construction: verbs of the cluster instead of transactions."""

import msgspec

from quorate.common.types import (
    NO_SESSION,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    MetadataOffset,
    SessionId,
    TopicId,
    TopicPartition,
    VoterId,
)
from quorate.metadata_log.apply import Applied, apply
from quorate.metadata_log.codec import decode_transaction, encode_transaction
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.image import Image
from quorate.metadata_log.reader import LogEntry
from quorate.metadata_log.records import (
    BrokerAdmitted,
    BrokerRegistration,
    ControllerClaim,
    ControllerEpochIs,
    NewPartition,
    Operation,
    PartitionAdditionPending,
    PartitionReassignment,
    PartitionRemovalPending,
    PartitionsAdded,
    PartitionsRemoved,
    PipelineRun,
    PipelineSet,
    PipelineTopicOffsets,
    QuorumVoter,
    QuorumVoterSet,
    Record,
    ScramCredential,
    SessionClosed,
    SessionOpened,
    TopicCreated,
    TopicDeletionPending,
    Transaction,
    TransactionResult,
)


def session_of(broker_id: int, incarnation: int = 0) -> SessionId:
    """A session id that people can read in a failing test."""
    return SessionId(f"session {broker_id:3}.{incarnation:4}".encode())


def topic_id_of(name: str, generation: int = 0) -> TopicId:
    return TopicId(f"{name[:14]}/{generation}".encode().ljust(16, b".")[:16])


def begun_pipeline() -> PipelineSet:
    """Begins a pipeline over topic ``orders``; no field has its default."""
    return PipelineSet(
        name="lake",
        expected_version=0,
        run_epoch=PipelineSet.BEGIN,
        sink="/lake",
        topics=(
            PipelineTopicOffsets(topic="orders", topic_id=topic_id_of("orders"), offsets=(5, -1)),
        ),
        run=PipelineRun(
            owner="h:1",
            started_ms=1,
            lease_until_ms=2,
            commit_epoch=3,
            commit=4,
            committed_ms=5,
            rows=6,
        ),
        rewound=True,
    )


def quorum_voter(voter_id: int, folder: int = 0, *, observer: bool = False) -> QuorumVoter:
    """A voter with addresses of its own; ``folder`` tells its data folders apart."""
    return QuorumVoter(
        voter_id=VoterId(voter_id),
        raft=Endpoint(f"voter{voter_id}", 7001),
        grpc=Endpoint(f"voter{voter_id}", 7101),
        directory_id=f"folder {voter_id:3}.{folder:5}".encode(),
        observer=observer,
    )


def scram_credential(mechanism: int = 1, iterations: int = 4_096) -> ScramCredential:
    """Return a credential as large as the mechanism's are; nobody knows its password."""
    key_bytes = 32 * mechanism
    return ScramCredential(
        salt=b"salt",
        stored_key=b"s" * key_bytes,
        server_key=b"k" * key_bytes,
        iterations=iterations,
    )


def first_voter_set() -> QuorumVoterSet:
    """Return the voter set with which a new quorum begins; its records are the newest from then
    on."""
    return QuorumVoterSet(
        expected_version=0, voters=(quorum_voter(1),), metadata_version=NEWEST_METADATA_VERSION
    )


class MetadataLogBuilder:
    """Applies transactions one after the other, each through its wire form."""

    def __init__(self, *, begun: bool = True) -> None:
        """``begun``: as a new quorum that has its voters, and so the newest metadata version."""
        self.image = Image()
        self.entries: list[LogEntry] = []
        self._next_offset = 1
        if begun:
            self.begin_quorum()

    def transact(
        self,
        *operations: Operation,
        atomic: bool = True,
        client_id: SessionId = NO_SESSION,
        sequence: int = 0,
        low_water: int = 0,
    ) -> TransactionResult:
        """Apply one transaction at the next offset."""
        return self.apply(
            Transaction(
                operations=operations,
                atomic=atomic,
                client_id=client_id,
                sequence=sequence,
                low_water=low_water,
            )
        ).result

    def apply(self, transaction: Transaction) -> Applied:
        offset = MetadataOffset(self._next_offset)
        self._next_offset += 1
        encoded = encode_transaction(transaction)
        self.entries.append(LogEntry(offset, encoded))
        applied = apply(self.image, offset, decode_transaction(encoded))
        self.image = applied.image
        return applied

    def skip_offset(self) -> None:
        """A no-op of the quorum takes an offset."""
        self._next_offset += 1

    def write(self, *records: Record) -> TransactionResult:
        """One operation without conditions."""
        return self.transact(Operation(records=records))

    def write_as_controller(self, *records: Record) -> TransactionResult:
        """One operation under the current controller epoch."""
        epoch = ControllerEpochIs(controller_epoch=self.image.controller_epoch)
        return self.transact(Operation(records=records, conditions=(epoch,)))

    def begin_quorum(self) -> TransactionResult:
        """Begin as the first leader of a new quorum does: its records are the newest from now
        on."""
        return self.write(first_voter_set())

    def start_broker(self, broker_id: int, incarnation: int = 0) -> TransactionResult:
        session = session_of(broker_id, incarnation)
        self.write(SessionOpened(session_id=session, timeout_ms=6_000))
        return self.write(
            BrokerRegistration(
                broker_id=BrokerId(broker_id),
                session_id=session,
                incarnation_id=f"process {broker_id:3}{incarnation:5}".encode(),
                kafka=Endpoint(f"kafka{broker_id}", 9092),
                grpc=Endpoint(f"grpc{broker_id}", 9192),
                metadata_version_max=NEWEST_METADATA_VERSION,
            )
        )

    def register_again(self, broker_id: int, **changes: object) -> TransactionResult:
        """The same process registers once more, some fields of its registration changed."""
        before = self.image.brokers[BrokerId(broker_id)].registration
        return self.write(msgspec.structs.replace(before, **changes))

    def stop_broker(self, broker_id: int, incarnation: int = 0) -> TransactionResult:
        session = session_of(broker_id, incarnation)
        return self.write(SessionClosed(session_id=session, reason="expired"))

    def elect_controller(self, broker_id: int, incarnation: int = 0) -> TransactionResult:
        return self.write(
            ControllerClaim(
                broker_id=BrokerId(broker_id),
                session_id=session_of(broker_id, incarnation),
                timestamp_ms=1,
                controller_epoch=ControllerEpoch(self.image.controller_epoch + 1),
            )
        )

    def admit_all(self) -> None:
        """The controller has dealt with every broker that arrived."""
        for broker_id, broker in self.image.brokers.items():
            self.write_as_controller(BrokerAdmitted(broker_id=broker_id, broker_epoch=broker.epoch))

    def delete_topic(self, name: str) -> TransactionResult:
        """Its deletion is accepted, and pending."""
        topic_id = self.image.topics[name].topic_id
        return self.write_as_controller(TopicDeletionPending(name=name, topic_id=topic_id))

    def add_partitions(self, name: str, *replicas: tuple[int, ...]) -> TransactionResult:
        """Ask for partitions, one per tuple of replicas: pending from now on."""
        topic = self.image.topics[name]
        return self.write_as_controller(
            PartitionAdditionPending(
                topic=name,
                topic_id=topic.topic_id,
                first_partition=len(topic.partitions),
                replicas=tuple(tuple(map(BrokerId, ids)) for ids in replicas),
            )
        )

    def complete_addition(self, name: str) -> TransactionResult:
        """The pending partitions are there, all their replicas in the ISR."""
        pending = self.image.additions[name]
        return self.write_as_controller(
            PartitionsAdded(
                topic=name,
                topic_id=pending.topic_id,
                first_partition=pending.first_partition,
                partitions=tuple(
                    NewPartition(replicas=ids, leader=ids[0], isr=ids) for ids in pending.replicas
                ),
                controller_id=self.image.controller_id,
                controller_epoch=self.image.controller_epoch,
            )
        )

    def remove_partitions(self, name: str, first: int) -> TransactionResult:
        """Ask for the removal of partitions from ``first`` on: pending from now on."""
        topic_id = self.image.topics[name].topic_id
        return self.write_as_controller(
            PartitionRemovalPending(topic=name, topic_id=topic_id, first_partition=first)
        )

    def complete_removal(self, name: str) -> TransactionResult:
        """The partitions whose removal is pending are gone."""
        pending = self.image.removals[name]
        return self.write_as_controller(
            PartitionsRemoved(
                topic=name, topic_id=pending.topic_id, first_partition=pending.first_partition
            )
        )

    def create_topic(
        self, name: str, *replicas: tuple[int, ...], generation: int = 0
    ) -> TransactionResult:
        """A topic with one partition per tuple of replicas, all of them in the ISR."""
        return self.write_as_controller(
            TopicCreated(
                name=name,
                topic_id=topic_id_of(name, generation),
                partitions=tuple(
                    NewPartition(
                        replicas=tuple(map(BrokerId, ids)),
                        leader=BrokerId(ids[0]),
                        isr=tuple(map(BrokerId, ids)),
                    )
                    for ids in replicas
                ),
                controller_id=self.image.controller_id,
                controller_epoch=self.image.controller_epoch,
            )
        )

    def reassign(
        self,
        tp: TopicPartition,
        *,
        replicas: tuple[int, ...],
        target: tuple[int, ...] = (),
        leader: int | None = None,
        isr: tuple[int, ...] | None = None,
    ) -> TransactionResult:
        """A step of a reassignment; leader and ISR stay as far as ``replicas`` hold them."""
        before, pending = self.image.partition(tp), self.image.reassignment(tp)
        assert before is not None
        original = before.replicas if pending is None else pending.original
        return self.write_as_controller(
            PartitionReassignment(
                topic=tp.topic,
                topic_id=self.image.topics[tp.topic].topic_id,
                partition=tp.partition,
                expected_version=before.version,
                replicas=tuple(map(BrokerId, replicas)),
                leader=before.leader if leader is None else BrokerId(leader),
                leader_epoch=LeaderEpoch(before.leader_epoch + 1),
                isr=tuple(one for one in before.isr if one in replicas)
                if isr is None
                else tuple(map(BrokerId, isr)),
                target=tuple(map(BrokerId, target)),
                original=original if target else (),
                controller_id=self.image.controller_id,
                controller_epoch=self.image.controller_epoch,
            )
        )
