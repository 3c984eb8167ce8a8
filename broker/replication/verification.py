"""Batches that would begin a transaction here wait until its coordinator has said that it is one.

See ``coordinator.partition_verifier`` for why. Until the coordinator has answered, what the same
producer sends next waits behind: batches of a producer are appended in the order they came, though
requests of one connection overlap. Batches of others go ahead.

Between the answer and the append no marker may have come: the transaction that was asked about is
over then, and the batch would begin one that nobody knows of.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from broker.background_tasks import BackgroundTasks
from broker.errors import KafkaError
from broker.log.record_batch import HEADER_BYTES, read_header
from broker.replication.api import ProduceEntry
from broker.replication.hosted import HostedPartition
from metadata_log.types import LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2

_NO_MARKER: Final = -1


class TransactionBatch(NamedTuple):
    """Whose batch is the first of a transaction in a partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    tp: TopicPartition


Verify = Callable[[TransactionBatch], Awaitable[None]]
"""Raises KafkaError where the partition is not part of that producer's open transaction."""

Release = Callable[[KafkaError | None], None]
"""Goes on with what was held, or tells why not."""


class Verification:
    """Of one broker. On the event loop alone."""

    def __init__(self, verify: Verify, is_enabled: Callable[[], bool] = lambda: True) -> None:
        self._verify = verify
        self._is_enabled = is_enabled
        self._held: dict[TransactionBatch, list[Release]] = {}
        self._tasks = BackgroundTasks()

    def needed(self, hosted: HostedPartition, entry: ProduceEntry) -> TransactionBatch | None:
        """What is to be asked before ``entry`` may be appended; None: it may be at once."""
        if entry.transactional_id is None or len(entry.records) < HEADER_BYTES:
            return None
        header = read_header(entry.records)
        if not header.is_transactional:
            return None
        batch = TransactionBatch(
            entry.transactional_id, header.producer_id, header.producer_epoch, entry.tp
        )
        return batch if self._begins(hosted, batch) else None

    async def verify(self, hosted: HostedPartition, batch: TransactionBatch) -> None:
        """For whoever appends in the name of a producer, right afterwards.

        Raises:
            KafkaError: the batch may not be appended, as ``Verify`` has it; or not any more.
        """
        if self._begins(hosted, batch):
            before = _leadership(hosted), _last_marker(hosted, batch.producer_id)
            await self._verify(batch)
            refusal = _changed(hosted, batch, *before)
            if refusal is not None:
                raise refusal

    def hold(self, hosted: HostedPartition, batch: TransactionBatch, release: Release) -> None:
        """Have ``release`` called once it is known; in the order of the calls."""
        held = self._held.get(batch)
        if held is not None:
            held.append(release)
            return
        self._held[batch] = [release]
        self._tasks.start(self._ask(hosted, batch))

    async def close(self) -> None:
        """Whoever waits looks for another leader."""
        await self._tasks.close()

    def _begins(self, hosted: HostedPartition, batch: TransactionBatch) -> bool:
        """Whether a transaction would begin with it; not if nobody is to be asked about that."""
        if not self._is_enabled():
            return False
        producer = hosted.log.producers.get(batch.producer_id)
        is_ongoing = batch.producer_id in hosted.log.transactions.ongoing
        return not is_ongoing or producer is None or producer.epoch != batch.producer_epoch

    async def _ask(self, hosted: HostedPartition, batch: TransactionBatch) -> None:
        refusal: KafkaError | None = KafkaError(
            errors_pb2.NOT_LEADER_OR_FOLLOWER, f"the leader of {batch.tp} is stopping"
        )
        try:
            await self.verify(hosted, batch)
            refusal = None
        except KafkaError as error:
            refusal = error
        finally:
            for release in self._held.pop(batch):
                release(refusal)


def _leadership(hosted: HostedPartition) -> LeaderEpoch | None:
    return hosted.replica.leader_epoch if hosted.leads else None


def _last_marker(hosted: HostedPartition, producer_id: int) -> int:
    producer = hosted.log.producers.get(producer_id)
    return _NO_MARKER if producer is None else producer.marker_offset


def _changed(
    hosted: HostedPartition, batch: TransactionBatch, epoch: LeaderEpoch | None, marker: int
) -> KafkaError | None:
    """Why what the coordinator said holds no more; None: it does."""
    if _leadership(hosted) != epoch:
        return KafkaError(
            errors_pb2.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {batch.tp} any more"
        )
    if _last_marker(hosted, batch.producer_id) != marker:
        return KafkaError(
            errors_pb2.INVALID_TXN_STATE,
            f"{batch.tp}: the transaction of transactional id {batch.transactional_id!r} has ended "
            "while its batch was on its way: begin another one",
        )
    return None
