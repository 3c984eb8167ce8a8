"""Batches that would begin a transaction here wait until its coordinator has confirmed it.

See ``coordinator.transactions.partition_verifier`` for the reason. Until the coordinator has
answered, what the same producer sends next waits behind: batches of a producer are appended in the
order they came, although requests of one connection overlap. Batches of other producers go ahead.

Between the answer and the append no marker may have come: the transaction that was asked about is
over then, and the batch would begin one that nobody knows of. With transactions v2 (KIP-890) the
marker may be that of the transaction before, whose end began the epoch of the batch, so the
coordinator is asked again.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.record_batch import HEADER_BYTES, read_header
from quorate.broker.replication.api import ProduceEntry, TransactionSupport
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_limits import PartitionLimits
from quorate.common.background_tasks import BackgroundTasks
from quorate.common.types import LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2

_NO_MARKER: Final = -1
_ASKED_AT_MOST: Final = 3
"""How often a coordinator is asked about one batch. Only markers of this one producer come between,
and the second answer is about the transaction that is open."""


class TransactionBatch(NamedTuple):
    """The first batch of a transaction in a partition, and the producer that sends it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    tp: TopicPartition
    support: TransactionSupport = TransactionSupport.ANNOUNCED


class TransactionVerifier(Protocol):
    """Asks the coordinator of a transaction.

    ``coordinator.transactions.partition_verifier`` implements it: its room stands above this one.
    """

    async def verify(self, batch: TransactionBatch) -> None:
        """Return if the partition is part of that producer's open transaction.

        Raises:
            KafkaError: it is not, or its coordinator cannot be asked.
        """


Release = Callable[[KafkaError | None], None]
"""A function that goes on with what was held, or with the refusal of it."""


class TransactionVerification:
    """The verification of transactions at one broker. It runs on the event loop alone."""

    def __init__(self, verifier: TransactionVerifier, limits: PartitionLimits) -> None:
        self._verifier = verifier
        self._limits = limits
        self._held: dict[TransactionBatch, list[Release]] = {}
        self._tasks = BackgroundTasks()

    def needed(self, hosted: HostedPartition, entry: ProduceEntry) -> TransactionBatch | None:
        """Return the question to ask before ``entry`` may be appended, or None if there is none."""
        if entry.transactional_id is None or len(entry.records) < HEADER_BYTES:
            return None
        header = read_header(entry.records)
        if not header.is_transactional:
            return None
        batch = TransactionBatch(
            entry.transactional_id,
            header.producer_id,
            header.producer_epoch,
            entry.tp,
            entry.support,
        )
        return batch if self._begins(hosted, batch) else None

    async def verify(self, hosted: HostedPartition, batch: TransactionBatch) -> None:
        """Ask before an append in the name of a producer. The append must follow at once.

        Raises:
            KafkaError: the batch may not be appended, as the verifier says, or not any more.
        """
        asked = 0
        while self._begins(hosted, batch):
            before = hosted.led_epoch, _last_marker(hosted, batch.producer_id)
            await self._verifier.verify(batch)
            refusal = _changed(hosted, batch, *before)
            if refusal is None:
                return
            asked += 1
            is_over = batch.support is not TransactionSupport.ADDED or asked == _ASKED_AT_MOST
            if is_over or hosted.led_epoch != before[0]:
                raise refusal

    def hold(self, hosted: HostedPartition, batch: TransactionBatch, release: Release) -> None:
        """Have ``release`` called once the coordinator has answered, in the order of the calls."""
        held = self._held.get(batch)
        if held is not None:
            held.append(release)
            return
        self._held[batch] = [release]
        self._tasks.start(self._ask(hosted, batch))

    async def close(self) -> None:
        """Refuse what waits: its producers look for another leader."""
        await self._tasks.close()

    def _begins(self, hosted: HostedPartition, batch: TransactionBatch) -> bool:
        """Say whether a transaction would begin with the batch, and verification is enabled."""
        is_added = batch.support is TransactionSupport.ADDED
        if not is_added and not self._limits.verifies_transactions():
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


def _last_marker(hosted: HostedPartition, producer_id: int) -> int:
    producer = hosted.log.producers.get(producer_id)
    return _NO_MARKER if producer is None else producer.marker_offset


def _changed(
    hosted: HostedPartition, batch: TransactionBatch, epoch: LeaderEpoch | None, marker: int
) -> KafkaError | None:
    """Return why the coordinator's answer holds no more, or None if it still holds."""
    if hosted.led_epoch != epoch:
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
