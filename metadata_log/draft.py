"""A draft of the next image, and the checks that records must pass before they are written to it.

Reads fall through to the base image, and the writes of an operation can be undone. A run of
transactions costs what it changes: the tables of the draft are folded into new persistent
maps once, at the end. Partition leaves are drafted one by one, and then joined into their topic's
tuple.
"""

import msgspec

from quorate.common.invariants import require
from quorate.common.types import (
    ID_BYTES,
    NO_BROKER,
    BrokerId,
    ControllerEpoch,
    MetadataOffset,
    SessionId,
    TopicId,
    TopicPartition,
)
from quorate.metadata_log.deleted_topics import DeletedTopics
from quorate.metadata_log.draft_tables import UNWRITTEN, DraftResultsTable, DraftTable, UndoLog
from quorate.metadata_log.image import (
    LEAST_LEVEL,
    METADATA_VERSION,
    Changes,
    ControllerState,
    Image,
    VoterSet,
)
from quorate.metadata_log.packed_partitions import PackedPartitions
from quorate.metadata_log.partitions import Partition, Reassignment, Topic, check_partition
from quorate.metadata_log.records import OperationRefused, ResultCode


class Draft:
    """The image under construction by a run of transactions. It reads as an ``Image`` does."""

    def __init__(self, base: Image) -> None:
        self._base = base
        self.by_quorum = False
        """Whether the quorum's leader wrote the present transaction, and not a client of it."""
        self.writer = NO_BROKER
        """The broker whose certificate brought the present transaction, if one did."""
        self._undo: UndoLog = []
        self.controller = base.controller
        self.controller_epoch = base.controller_epoch
        self.next_producer_id = base.next_producer_id
        self.voter_set = base.voter_set
        self.administered = base.administered
        self.deleted_topics = base.deleted_topics
        self.scram_decoy_key = base.scram_decoy_key
        self._partitions: dict[TopicPartition, Partition] = {}
        self.sessions = DraftTable(base.sessions, self._undo)
        self.silences = DraftTable(base.silences, self._undo)
        self.brokers = DraftTable(base.brokers, self._undo)
        self.histories = DraftTable(base.histories, self._undo)
        self.topics = DraftTable(base.topics, self._undo)
        self.topic_names = DraftTable(base.topic_names, self._undo)
        self.deletions = DraftTable(base.deletions, self._undo)
        self.reassignments = DraftTable(base.reassignments, self._undo)
        self.additions = DraftTable(base.additions, self._undo)
        self.removals = DraftTable(base.removals, self._undo)
        self.acls = DraftTable(base.acls, self._undo)
        self.configs = DraftTable(base.configs, self._undo)
        self.features = DraftTable(base.features, self._undo)
        self.client_quotas = DraftTable(base.client_quotas, self._undo)
        self.scram = DraftTable(base.scram, self._undo)
        self.tokens = DraftTable(base.tokens, self._undo)
        self.pipelines = DraftTable(base.pipelines, self._undo)
        self.results = DraftResultsTable(base.results, self.sessions, self._undo)

    # -- single values ---------------------------------------------------------------------------

    @property
    def metadata_version(self) -> int:
        """The level in force, as ``Image.metadata_version``."""
        return self.features.get(METADATA_VERSION) or LEAST_LEVEL

    @property
    def active_controller_epoch(self) -> ControllerEpoch | None:
        """The epoch of the broker that holds /controller, or None while no broker holds it."""
        return None if self.controller is None else self.controller_epoch

    def put_controller(self, controller: ControllerState | None) -> None:
        """Write /controller, or remove it."""
        self._put_field("controller", controller)

    def put_controller_epoch(self, epoch: ControllerEpoch) -> None:
        """Write /controller_epoch."""
        require(
            epoch > self.controller_epoch,
            "/controller_epoch",
            "controller epochs grow (E2)",
            epoch=epoch,
            before=self.controller_epoch,
        )
        self._put_field("controller_epoch", epoch)

    def put_next_producer_id(self, producer_id: int) -> None:
        """Write /producer_ids."""
        require(
            producer_id >= self.next_producer_id,
            "/producer_ids",
            "producer ids are given out once (KIP-98)",
            next=producer_id,
            before=self.next_producer_id,
        )
        self._put_field("next_producer_id", producer_id)

    def put_voter_set(self, voter_set: VoterSet) -> None:
        """Write /quorum/voters."""
        self._put_field("voter_set", voter_set)

    def put_administered(self, offset: MetadataOffset) -> None:
        """Write /administration."""
        self._put_field("administered", offset)

    def put_deleted_topics(self, deleted: DeletedTopics) -> None:
        """Write which deletions are remembered."""
        self._put_field("deleted_topics", deleted)

    def put_scram_decoy_key(self, key: bytes) -> None:
        """Write the key for the credentials of users who do not exist."""
        self._put_field("scram_decoy_key", key)

    def _put_field(self, name: str, value: object) -> None:
        """Write a field of the draft so that ``undo_to`` finds its former value."""
        fields = self.__dict__
        self._undo.append((fields, name, fields[name]))
        fields[name] = value

    # -- partitions ------------------------------------------------------------------------------

    def partition(self, tp: TopicPartition) -> Partition | None:
        """Return the partition, or None if the topic or that number does not exist."""
        drafted = self._partitions.get(tp)
        if drafted is not None:
            return drafted
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def put_partition(self, tp: TopicPartition, partition: Partition) -> None:
        """Write the leaf of one partition."""
        check_partition(tp, self.partition(tp), partition)
        self._undo.append((self._partitions, tp, self._partitions.get(tp, UNWRITTEN)))
        self._partitions[tp] = partition

    def drop_partitions(self, topic: Topic, first: int = 0) -> None:
        """Forget the drafted leaves of partitions that are being removed."""
        for number in range(first, len(topic.partitions)):
            tp = TopicPartition(topic.name, number)
            if tp in self._partitions:
                self._undo.append((self._partitions, tp, self._partitions.pop(tp)))

    # -- reassignments ---------------------------------------------------------------------------

    def reassignment(self, tp: TopicPartition) -> Reassignment | None:
        """Return the pending reassignment of the partition, or None if there is none."""
        pending = self.reassignments.get(tp.topic)
        return None if pending is None else pending.get(tp.partition)

    # -- checks: each raises OperationRefused ----------------------------------------------------

    def require_session(self, session_id: SessionId) -> None:
        """Refuse the operation if the session is closed (rule 9)."""
        if self.sessions.get(session_id) is None:
            raise OperationRefused(ResultCode.SESSION_GONE, f"session {session_id.hex()} is closed")

    def require_topic(self, name: str, topic_id: TopicId) -> Topic:
        """Return the topic; refuse the operation if there is none of that name and id."""
        topic = self.topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            raise OperationRefused(
                ResultCode.UNKNOWN_TOPIC, f"no topic {name!r} with id {topic_id.hex()}"
            )
        return topic

    def require_partition(self, tp: TopicPartition, topic_id: TopicId) -> Partition:
        """Return the partition; refuse the operation if the topic with that id does not have it."""
        self.require_topic(tp.topic, topic_id)
        partition = self.partition(tp)
        if partition is None:
            raise OperationRefused(ResultCode.UNKNOWN_TOPIC, f"no partition {tp}")
        return partition

    def require_kept(self, tp: TopicPartition) -> None:
        """Refuse the operation if the removal of the partition is pending.

        The leadership of such a partition stays as the StopReplica request for it says.
        """
        removal = self.removals.get(tp.topic)
        if removal is not None and tp.partition >= removal.first_partition:
            raise OperationRefused(ResultCode.UNKNOWN_TOPIC, f"partition {tp} is being removed")

    def require_controller(self, broker_id: BrokerId, epoch: ControllerEpoch) -> None:
        """Refuse the operation unless this broker is the controller of this epoch (E2)."""
        controller = self.controller
        if (
            controller is None
            or controller.broker_id != broker_id
            or self.controller_epoch != epoch
        ):
            raise OperationRefused(
                ResultCode.CONTROLLER_FENCED,
                f"broker {broker_id} is not the controller of epoch {epoch}: "
                f"the current epoch is {self.controller_epoch}",
            )

    # -- undoing and folding ---------------------------------------------------------------------

    def begin_transaction(self, *, by_quorum: bool, writer: BrokerId = NO_BROKER) -> None:
        """Make all earlier writes final: ``undo_to(0)`` comes back to this point."""
        self.by_quorum = by_quorum
        self.writer = writer
        self._undo.clear()

    def mark(self) -> int:
        """Return a point of this transaction to go back to with ``undo_to``."""
        return len(self._undo)

    def undo_to(self, mark: int) -> None:
        """Take back every write since ``mark``, the newest first."""
        while len(self._undo) > mark:
            written, key, before = self._undo.pop()
            if before is UNWRITTEN:
                written.pop(key, None)
            else:
                written[key] = before

    def folded(self, offset: MetadataOffset) -> Image:
        """Return the image after ``offset``, with every drafted write in it.

        The writes are final from here on. An entry of the undo log may refer to the draft's own
        fields: it is dropped, so that no draft waits for the cycle collector to be freed.
        """
        self._join_leaves()
        self._undo.clear()
        return Image(
            offset=offset,
            controller=self.controller,
            controller_epoch=self.controller_epoch,
            next_producer_id=self.next_producer_id,
            voter_set=self.voter_set,
            administered=self.administered,
            restored_offset=self._base.restored_offset,
            sessions=self.sessions.folded(),
            silences=self.silences.folded(),
            brokers=self.brokers.folded(),
            histories=self.histories.folded(),
            deleted_topics=self.deleted_topics,
            topics=self.topics.folded(),
            topic_names=self.topic_names.folded(),
            deletions=self.deletions.folded(),
            reassignments=self.reassignments.folded(),
            additions=self.additions.folded(),
            removals=self.removals.folded(),
            acls=self.acls.folded(),
            configs=self.configs.folded(),
            features=self.features.folded(),
            client_quotas=self.client_quotas.folded(),
            scram=self.scram.folded(),
            scram_decoy_key=self.scram_decoy_key,
            tokens=self.tokens.folded(),
            pipelines=self.pipelines.folded(),
            results=self.results.folded(),
        )

    def changes(self) -> Changes:
        """Return what was written, by key. Call it after ``folded``, which writes the topics."""
        return Changes(
            controller=self.controller is not self._base.controller,
            brokers=frozenset(self.brokers.written),
            topics=frozenset(self.topics.written),
            deletions=frozenset(self.deletions.written),
            reassignments=frozenset(self.reassignments.written),
            additions=frozenset(self.additions.written),
            removals=frozenset(self.removals.written),
            configs=frozenset(self.configs.written),
            acls=frozenset(self.acls.written),
            features=frozenset(self.features.written),
            client_quotas=frozenset(self.client_quotas.written),
            scram=frozenset(self.scram.written),
            tokens=frozenset(self.tokens.written),
            pipelines=frozenset(self.pipelines.written),
            sessions=frozenset(self.sessions.written),
        )

    def _join_leaves(self) -> None:
        by_topic: dict[str, dict[int, Partition]] = {}
        for tp, partition in self._partitions.items():
            by_topic.setdefault(tp.topic, {})[tp.partition] = partition
        for name, leaves in by_topic.items():
            topic = self.topics.get(name)
            if topic is not None:
                self.topics.put(name, _with_leaves(topic, leaves))


def _with_leaves(topic: Topic, leaves: dict[int, Partition]) -> Topic:
    if isinstance(topic.partitions, PackedPartitions):
        return msgspec.structs.replace(topic, partitions=topic.partitions.replaced(leaves))
    partitions = list(topic.partitions)
    for number, leaf in leaves.items():
        partitions[number] = leaf
    return msgspec.structs.replace(topic, partitions=tuple(partitions))


def require_version(tp: TopicPartition, before: Partition, expected: int) -> None:
    """Refuse the operation unless leaderAndISR is at the expected version: compare-and-set (C1)."""
    if before.version != expected:
        raise OperationRefused(
            ResultCode.VERSION_CONFLICT,
            f"leaderAndISR of {tp} is at version {before.version}, not {expected}",
        )


def require_isr(
    leader: BrokerId, isr: tuple[BrokerId, ...], replicas: tuple[BrokerId, ...]
) -> None:
    """Refuse an ISR with a broker twice, with one that is not a replica, or without its leader."""
    if len(set(isr)) != len(isr) or not set(isr) <= set(replicas):
        raise OperationRefused(
            ResultCode.INVALID, f"ISR {list(isr)} is not among replicas {list(replicas)}"
        )
    if leader != NO_BROKER and leader not in isr:
        raise OperationRefused(ResultCode.INVALID, f"leader {leader} is not in the ISR {list(isr)}")


def require_id(what: str, value: bytes) -> None:
    """Refuse an id that does not have the length of all ids."""
    if len(value) != ID_BYTES:
        raise OperationRefused(ResultCode.INVALID, f"{what} has {len(value)} bytes, not {ID_BYTES}")
