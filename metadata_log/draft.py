"""A draft of the next image: reads fall through to the base, writes can be undone per operation.

A run of transactions costs what it changes: written keys lie in plain dictionaries over the base
image's persistent maps and are folded in once, at the end. Partition leaves are drafted one by one
and joined into their topic's tuple at that moment.
"""

from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import immutables
import msgspec

from metadata_log.acls import AclPattern, EntriesByPrincipal
from metadata_log.client_quotas import QuotaEntity
from metadata_log.image import (
    Broker,
    ClientResults,
    Controller,
    DelegationToken,
    EntityKey,
    Image,
    Partition,
    PartitionAddition,
    PartitionRemoval,
    Pipeline,
    Reassignment,
    ScramKey,
    Topic,
    TopicDeletion,
    VoterSet,
)
from metadata_log.records import ScramCredential, SessionOpened, TransactionResult
from metadata_log.types import (
    BrokerId,
    ControllerEpoch,
    MetadataOffset,
    SessionId,
    TopicId,
    TopicPartition,
)

K = TypeVar("K")
V = TypeVar("V")

_GONE: Any = object()
_UNWRITTEN: Any = object()

UndoLog = list[tuple[dict[Any, Any], Any, Any]]


class Table(Generic[K, V]):
    """A persistent map with drafted changes on top, each recorded for undoing."""

    __slots__ = ("_base", "_undo", "written")

    def __init__(self, base: "immutables.Map[K, V]", undo: UndoLog) -> None:
        self._base = base
        self._undo = undo
        self.written: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        if key not in self.written:
            return self._base.get(key)
        value = self.written[key]
        return None if value is _GONE else value

    def put(self, key: K, value: V) -> None:
        self._undo.append((self.written, key, self.written.get(key, _UNWRITTEN)))
        self.written[key] = value

    def remove(self, key: K) -> None:
        self.put(key, _GONE)

    def items(self) -> Iterator[tuple[K, V]]:
        """Base and draft together: for tables that are small (brokers, sessions)."""
        for key, value in self._base.items():
            if key not in self.written:
                yield key, value
        for key, value in self.written.items():
            if value is not _GONE:
                yield key, value

    def folded(self) -> "immutables.Map[K, V]":
        """The base with every drafted change in it."""
        if not self.written:
            return self._base
        mutation = self._base.mutate()
        for key, value in self.written.items():
            if value is not _GONE:
                mutation[key] = value
            elif key in mutation:
                del mutation[key]
        return mutation.finish()


_NO_RESULTS = ClientResults(0, immutables.Map())


class OpenResults:
    """Results kept for one client, open for change: one mutation of the map for a whole run."""

    __slots__ = ("_by_sequence", "low_water")

    def __init__(self, kept: ClientResults) -> None:
        self.low_water = kept.low_water
        self._by_sequence = kept.by_sequence.mutate()

    def get(self, sequence: int) -> TransactionResult | None:
        return self._by_sequence.get(sequence)

    def keep(self, sequence: int, result: TransactionResult, low_water: int) -> None:
        """Remember the result for retries, and forget what the client no longer asks for."""
        if low_water > self.low_water:
            self._forget_below(low_water)
        self._by_sequence[sequence] = result

    def _forget_below(self, low_water: int) -> None:
        """Drop results below the client's new low-water mark.

        Sequences are dense as a rule, so walking the step is cheaper than walking what is kept; a
        mark that jumps far (a client may choose any) must not cost more than what is kept.
        """
        results = self._by_sequence
        if low_water - self.low_water <= len(results):
            for sequence in range(self.low_water, low_water):
                results.pop(sequence, None)
        else:
            kept = results.finish()
            self._by_sequence = kept.mutate()
            for sequence in kept:
                if sequence < low_water:
                    del self._by_sequence[sequence]
        self.low_water = low_water

    def folded(self) -> ClientResults:
        return ClientResults(self.low_water, self._by_sequence.finish())


class ResultsTable:
    """Results kept for clients. Keeping is final; only ``remove`` is part of what may be undone.

    They live as long as the client's session: what closes it removes them.
    """

    __slots__ = ("_base", "_sessions", "_undo", "_written")

    def __init__(
        self,
        base: "immutables.Map[SessionId, ClientResults]",
        sessions: "Table[SessionId, SessionOpened]",
        undo: UndoLog,
    ) -> None:
        self._base = base
        self._sessions = sessions
        self._undo = undo
        self._written: dict[SessionId, Any] = {}

    def of(self, client: SessionId) -> OpenResults | None:
        """The client's, to look at and to change; None if its session is closed."""
        results: OpenResults = self._written.get(client, _GONE)
        return self._open(client) if results is _GONE else results

    def _open(self, client: SessionId) -> OpenResults | None:
        if self._sessions.get(client) is None:
            return None
        was_removed = client in self._written
        kept = _NO_RESULTS if was_removed else self._base.get(client, _NO_RESULTS)
        opened = self._written[client] = OpenResults(kept)
        return opened

    def remove(self, client: SessionId) -> None:
        self._undo.append((self._written, client, self._written.get(client, _UNWRITTEN)))
        self._written[client] = _GONE

    def folded(self) -> "immutables.Map[SessionId, ClientResults]":
        """The base with everything that was kept and forgotten since."""
        if not self._written:
            return self._base
        mutation = self._base.mutate()
        for client, results in self._written.items():
            if results is not _GONE:
                mutation[client] = results.folded()
            elif client in mutation:
                del mutation[client]
        return mutation.finish()


class Changes(NamedTuple):
    """What differs between two successive images, by key, for those who react to changes."""

    controller: bool = False
    brokers: frozenset[BrokerId] = frozenset()
    topics: frozenset[str] = frozenset()
    deletions: frozenset[str] = frozenset()
    reassignments: frozenset[str] = frozenset()
    additions: frozenset[str] = frozenset()
    removals: frozenset[str] = frozenset()
    configs: frozenset[EntityKey] = frozenset()
    acls: frozenset[AclPattern] = frozenset()
    features: frozenset[str] = frozenset()
    client_quotas: frozenset[QuotaEntity] = frozenset()
    scram: frozenset[ScramKey] = frozenset()
    tokens: frozenset[str] = frozenset()
    pipelines: frozenset[str] = frozenset()
    sessions: frozenset[SessionId] = frozenset()


class Draft:
    """The image under construction by a run of transactions. Reads as an ``Image`` does."""

    def __init__(self, base: Image) -> None:
        self._base = base
        self.by_quorum = False
        """The quorum's leader wrote the present transaction, not a client of it."""
        self._undo: UndoLog = []
        self._scalars: dict[str, Any] = {
            "controller": base.controller,
            "controller_epoch": base.controller_epoch,
            "next_producer_id": base.next_producer_id,
            "voter_set": base.voter_set,
            "administered": base.administered,
        }
        self._partitions: dict[TopicPartition, Partition] = {}
        self.sessions: Table[SessionId, SessionOpened] = Table(base.sessions, self._undo)
        self.silences: Table[SessionId, int] = Table(base.silences, self._undo)
        self.brokers: Table[BrokerId, Broker] = Table(base.brokers, self._undo)
        self.topics: Table[str, Topic] = Table(base.topics, self._undo)
        self.topic_names: Table[TopicId, str] = Table(base.topic_names, self._undo)
        self.deletions: Table[str, TopicDeletion] = Table(base.deletions, self._undo)
        self.reassignments: Table[str, immutables.Map[int, Reassignment]] = Table(
            base.reassignments, self._undo
        )
        self.additions: Table[str, PartitionAddition] = Table(base.additions, self._undo)
        self.removals: Table[str, PartitionRemoval] = Table(base.removals, self._undo)
        self.acls: Table[AclPattern, EntriesByPrincipal] = Table(base.acls, self._undo)
        self.configs: Table[EntityKey, immutables.Map[str, str]] = Table(base.configs, self._undo)
        self.features: Table[str, int] = Table(base.features, self._undo)
        self.client_quotas: Table[QuotaEntity, immutables.Map[str, float]] = Table(
            base.client_quotas, self._undo
        )
        self.scram: Table[ScramKey, ScramCredential] = Table(base.scram, self._undo)
        self.tokens: Table[str, DelegationToken] = Table(base.tokens, self._undo)
        self.pipelines: Table[str, Pipeline] = Table(base.pipelines, self._undo)
        self.results = ResultsTable(base.results, self.sessions, self._undo)

    # -- single values ---------------------------------------------------------------------------

    @property
    def controller(self) -> Controller | None:
        controller: Controller | None = self._scalars["controller"]
        return controller

    @controller.setter
    def controller(self, value: Controller | None) -> None:
        self._put_scalar("controller", value)

    @property
    def controller_epoch(self) -> ControllerEpoch:
        epoch: ControllerEpoch = self._scalars["controller_epoch"]
        return epoch

    @controller_epoch.setter
    def controller_epoch(self, value: ControllerEpoch) -> None:
        self._put_scalar("controller_epoch", value)

    @property
    def epoch_in_office(self) -> ControllerEpoch | None:
        """The epoch of whoever holds /controller; None: nobody does."""
        scalars = self._scalars
        return None if scalars["controller"] is None else scalars["controller_epoch"]

    @property
    def next_producer_id(self) -> int:
        next_id: int = self._scalars["next_producer_id"]
        return next_id

    @next_producer_id.setter
    def next_producer_id(self, value: int) -> None:
        self._put_scalar("next_producer_id", value)

    @property
    def voter_set(self) -> VoterSet:
        voter_set: VoterSet = self._scalars["voter_set"]
        return voter_set

    @voter_set.setter
    def voter_set(self, value: VoterSet) -> None:
        self._put_scalar("voter_set", value)

    @property
    def administered(self) -> MetadataOffset:
        offset: MetadataOffset = self._scalars["administered"]
        return offset

    @administered.setter
    def administered(self, value: MetadataOffset) -> None:
        self._put_scalar("administered", value)

    def _put_scalar(self, name: str, value: object) -> None:
        self._undo.append((self._scalars, name, self._scalars[name]))
        self._scalars[name] = value

    # -- partitions ------------------------------------------------------------------------------

    def partition(self, tp: TopicPartition) -> Partition | None:
        drafted = self._partitions.get(tp)
        if drafted is not None:
            return drafted
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def put_partition(self, tp: TopicPartition, partition: Partition) -> None:
        self._undo.append((self._partitions, tp, self._partitions.get(tp, _UNWRITTEN)))
        self._partitions[tp] = partition

    def drop_partitions(self, topic: Topic, first: int = 0) -> None:
        """Forget drafted leaves of partitions that are being removed."""
        for number in range(first, len(topic.partitions)):
            tp = TopicPartition(topic.name, number)
            if tp in self._partitions:
                self._undo.append((self._partitions, tp, self._partitions.pop(tp)))

    # -- reassignments ---------------------------------------------------------------------------

    def reassignment(self, tp: TopicPartition) -> Reassignment | None:
        pending = self.reassignments.get(tp.topic)
        return None if pending is None else pending.get(tp.partition)

    def put_reassignment(self, tp: TopicPartition, pending: Reassignment) -> None:
        others = self.reassignments.get(tp.topic) or immutables.Map()
        self.reassignments.put(tp.topic, others.set(tp.partition, pending))

    def remove_reassignment(self, tp: TopicPartition) -> None:
        """The partition's pending record goes, if it has one."""
        pending = self.reassignments.get(tp.topic)
        if pending is None or tp.partition not in pending:
            return
        others = pending.delete(tp.partition)
        if others:
            self.reassignments.put(tp.topic, others)
        else:
            self.reassignments.remove(tp.topic)

    # -- undoing and folding ---------------------------------------------------------------------

    def begin_transaction(self, *, by_quorum: bool) -> None:
        """What was written so far stays: ``undo_to(0)`` comes back to here."""
        self.by_quorum = by_quorum
        self._undo.clear()

    def mark(self) -> int:
        """A point of this transaction to go back to with ``undo_to``."""
        return len(self._undo)

    def undo_to(self, mark: int) -> None:
        """Take back every write since ``mark``, newest first."""
        while len(self._undo) > mark:
            written, key, before = self._undo.pop()
            if before is _UNWRITTEN:
                written.pop(key, None)
            else:
                written[key] = before

    def folded(self, offset: MetadataOffset) -> Image:
        """The image after ``offset``."""
        self._join_leaves()
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
            tokens=self.tokens.folded(),
            pipelines=self.pipelines.folded(),
            results=self.results.folded(),
        )

    def changes(self) -> Changes:
        """What was written, once ``folded``."""
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
    partitions = list(topic.partitions)
    for number, leaf in leaves.items():
        partitions[number] = leaf
    return msgspec.structs.replace(topic, partitions=tuple(partitions))
