"""Producers of transactions, some of which become zombies, and readers of what was committed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from quorate.broker.coordinator.transactions.state.transaction_metadata import ProducerEpoch
from quorate.broker.replication.api import TransactionSupport
from quorate.common.types import TopicIdPartition, TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.sim.cluster.client import Client, TopicPart
from tests.sim.cluster.consumer import Consumer
from tests.sim.world import Violation
from tests.support.record_batches import TRANSACTIONAL, assemble, plain_records

if TYPE_CHECKING:
    from tests.sim.cluster.clients import Clients
    from tests.sim.cluster.transaction_coordinator import Coordinator

_TRIES: Final = 6
_SAYS_SO: Final = frozenset(
    {
        errors_pb2.INVALID_PRODUCER_EPOCH,
        errors_pb2.INVALID_TXN_STATE,
        errors_pb2.TRANSACTION_ABORTABLE,
        errors_pb2.INVALID_PRODUCER_ID_MAPPING,
        errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER,
        errors_pb2.CONCURRENT_TRANSACTIONS,
    }
)
"""The transaction cannot go on."""


class _Late(NamedTuple):
    """A batch to be sent after the end of its transaction."""

    tp: TopicPart
    transaction: int
    producer: ProducerEpoch


class TransactionalProducer(Client):
    """One transaction after the other; a new epoch after everything that goes wrong.

    Every other one has transactions v2 (KIP-890): leaders add partitions, and each end begins an
    epoch. What it sends late must get in nowhere.
    """

    def __init__(
        self, clients: "Clients", coordinator: "Coordinator", number: int, pace_s: float
    ) -> None:
        super().__init__(clients, number)
        self._coordinator = coordinator
        self._id = f"t{number}"
        self._pace_s = pace_s
        self._timeout_s = self.world.random.choice([1.0, 3.0])
        self._producer: ProducerEpoch | None = None
        self._sequences: dict[TopicIdPartition, int] = {}
        self._sent = 0
        self._late: _Late | None = None
        self._has_epochs = number % 2 == 1
        added, announced = TransactionSupport.ADDED, TransactionSupport.ANNOUNCED
        self._support = added if self._has_epochs else announced

    async def run(self) -> None:
        while not self.clients.is_stopping:
            await self.pause(self._pace_s)
            if not self.leaders or self.world.chance(0.05):
                await self.look()
            if self.leaders and not await self._transaction():
                self._producer = None
        self.is_idle = True

    async def _transaction(self) -> bool:
        """Whether the producer may go on in its epoch."""
        draw = self.world.random
        if self._producer is None:
            timeout_ms = int(self._timeout_s * 1_000)
            self._producer = await self._coordinator.init_producer(self._id, timeout_ms)
            self._sequences.clear()
            if self._producer is None:
                return False
        known = sorted(self.leaders)
        tps = draw.sample(known, min(len(known), draw.choice([1, 1, 2])))
        if not self._has_epochs:
            partitions = {TopicPartition(*tp) for tp in tps}
            code = await self._coordinator.add_partitions(self._id, self._producer, partitions)
            if code != errors_pb2.NONE:
                return code == errors_pb2.CONCURRENT_TRANSACTIONS
        coordinator = self._coordinator
        number_of = coordinator.number_of_next if self._has_epochs else coordinator.number_of
        transaction = number_of(self._id)
        for _ in range(draw.choice([1, 1, 3])):
            for tp in tps:
                if not await self._write(tp, transaction, self._producer):
                    return False
        await self._send_late(tps)
        if self.world.chance(0.1):
            return await self._stop_for_a_while(tps[0], transaction)
        commit = self.world.chance(0.7)
        if self._has_epochs:
            return await self._end_in_next_epoch(tps[0], transaction, commit=commit)
        code = await self._coordinator.end(self._id, self._producer, commit=commit)
        return code == errors_pb2.NONE

    async def _end_in_next_epoch(self, tp: TopicPart, transaction: int, *, commit: bool) -> bool:
        """End, and now and then keep a batch of what has ended for later."""
        assert self._producer is not None
        before = self._producer
        self._producer = await self._coordinator.end_in_next_epoch(self._id, before, commit=commit)
        if self._producer is None:
            return False
        if self.world.chance(0.3):
            self._late = _Late(tp, transaction, before)
        self._sequences.clear()
        return True

    async def _send_late(self, begun: Sequence[TopicPart]) -> None:
        """Send the batch that was kept, if the next transaction has begun in its partition.

        Until then the leader may not have the marker yet, and the batch gets into its own
        transaction, where it belongs. Afterwards it must get in nowhere (KIP-890).
        """
        late = self._late
        if late is None or late.tp not in begun:
            return
        self._late = None
        if await self._write(*late):
            raise Violation(f"{self._id}: a batch of {late.producer} got in after its end")

    async def _stop_for_a_while(self, tp: TopicPart, transaction: int) -> bool:
        """Stop until the transaction may be over, and go on as if it were not."""
        assert self._producer is not None
        await self.pause(self._timeout_s)
        await self._write(tp, transaction, self._producer)
        return False

    async def _write(self, tp: TopicPart, transaction: int, producer: ProducerEpoch) -> bool:
        """Whether the batch is acknowledged."""
        known = self.leaders.get(tp)
        if known is None:
            return False
        tip = TopicIdPartition(known[0], tp[1])  # type: ignore[arg-type]
        sequence = self._sequences.get(tip, 0)
        self._sent += 1
        value = b"<%d.%d>" % (self.number, self._sent)
        self.clients.checker.truths.outcomes.writes(transaction, value)
        batch = assemble(
            plain_records(value),
            base_offset=0,
            last_delta=0,
            count=1,
            attributes=TRANSACTIONAL,
            producer=(*producer, sequence),
        )
        request = (tp, batch, -1, 1_500, self._id, self._support)
        for _ in range(_TRIES):
            known, answer = self.leaders.get(tp), None
            if known is not None and known[1] >= 0:
                answer = await self.call(known[1], "TransactionalProduce", request)
            if answer is not None and answer[0] == errors_pb2.NONE:
                told = TopicIdPartition(*answer[2])
                self.clients.checker.acked(told, answer[1], value, answer[3])
                self._sequences[tip] = sequence + 1
                return told == tip
            if answer is not None:
                self.check_code(answer[0], "TransactionalProduce")
                waits = errors_pb2.CONCURRENT_TRANSACTIONS if self._has_epochs else None
                if answer[0] in _SAYS_SO and answer[0] != waits:
                    return False
            await self.pause(0.1)
            await self.look()
        return False


class CommittedConsumer(Consumer):
    """Reads what was committed, from the leader or from any other replica (KIP-392)."""

    async def ask(self, leader: int, tp: TopicPart, position: int, epoch: int) -> Any:
        broker = leader if self.world.chance(0.5) else self.any_broker()
        return await self.call(broker, "FetchCommitted", (tp, position, epoch, 300))

    def take(self, tip: TopicIdPartition, epoch: int, position: int, answer: Any) -> int:
        *_, records, _, aborted = answer
        who = f"read_committed consumer {self.number}, epoch {epoch}"
        return self.clients.checker.saw_committed(tip, epoch, position, records, aborted, who)
