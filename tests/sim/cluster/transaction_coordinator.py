"""A coordinator of transactions: the product's decisions, and its way to the leaders.

Its state stands for what the log of coordinators holds, and is never lost; its leadership moves,
and whoever had it before goes on for a while to send the markers it had to send. Everything else is
the product: ``decisions``, ``MarkerSender``, the service that takes markers, ``Verification``.
"""

import asyncio
from collections.abc import Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Final

import grpc.aio

from quorate.broker.common.errors import KafkaError, error_name
from quorate.broker.coordinator.transactions.marker_sender import (
    MarkerSender,
    MarkerWrite,
    PartitionLeadership,
)
from quorate.broker.coordinator.transactions.partition_verifier import refusal
from quorate.broker.coordinator.transactions.state import transaction_decisions as decisions
from quorate.broker.coordinator.transactions.state.ends_in_next_epoch import end_in_next_epoch
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    AT_REST,
    TRANSACTIONS_V2,
    ProducerEpoch,
    TransactionMetadata,
    TransactionState,
)
from quorate.broker.coordinator.transactions.transaction_peers import marker_request
from quorate.broker.replication.api import TransactionSupport
from quorate.broker.replication.serving.transaction_verification import TransactionBatch
from quorate.common.types import BrokerId, LeaderEpoch, TopicIdPartition, TopicPartition
from quorate_proto.v1 import errors_pb2, transactions_pb2_grpc
from tests.sim.cluster.client import CALL_TIMEOUT_S, Client
from tests.sim.cluster.quorum import SimulatedQuorum
from tests.sim.cluster.rpc_frames import BROKERS, endpoint_of
from tests.sim.world import Violation

if TYPE_CHECKING:
    from tests.sim.cluster.clients import Clients

_FIRST_PRODUCER_ID: Final = 5_000
_FIRST_BROKER_ID: Final = 200
_TRIES: Final = 100


class _Office:
    """One leadership of the coordinator's partition: has markers written in its epoch."""

    def __init__(self, coordinator: "Coordinator", epoch: int) -> None:
        self.epoch = epoch
        self._coordinator = coordinator
        self._requests = 0
        self.sender = MarkerSender(self, self._write)

    def leadership(self, tp: TopicPartition) -> PartitionLeadership | None:
        known = self._coordinator.leaders.get((tp.topic, tp.partition))
        return known and PartitionLeadership(BrokerId(known[1]), LeaderEpoch(known[2]))

    async def is_gone(self, tp: TopicPartition) -> bool:
        return self._coordinator.quorum.image.partition(tp) is None

    async def _write(self, broker_id: BrokerId, writes: Sequence[MarkerWrite]) -> Sequence[int]:
        coordinator = self._coordinator
        self._requests += 1
        request = marker_request(writes)
        request.timeout_ms = 1_500
        request.broker_id = _FIRST_BROKER_ID + self.epoch
        request.broker_epoch, request.request_number = 1, self._requests
        before = [coordinator.tip(write.tp) for write in writes]
        channel = coordinator.clients.process.rpc.open_channel(endpoint_of(broker_id, BROKERS))
        stub = transactions_pb2_grpc.TransactionsStub(channel)
        try:
            answer = await stub.WriteMarkers(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return [errors_pb2.REQUEST_TIMED_OUT] * len(writes)
        if answer.error_code:
            return [answer.error_code] * len(writes)
        codes = list(answer.partition_error_codes)
        for write, tip, code in zip(writes, before, codes, strict=True):
            coordinator.check_code(code, "WriteMarkers")
            if code == errors_pb2.NONE and tip is not None and tip == coordinator.tip(write.tp):
                coordinator.clients.checker.ended(tip, write.leader_epoch, write.marker)
        return codes


class Coordinator(Client):
    """The coordinator of all transactional ids of a run."""

    def __init__(self, clients: "Clients", quorum: SimulatedQuorum) -> None:
        super().__init__(clients, 60)
        self.quorum = quorum
        self._outcomes = clients.checker.truths.outcomes
        self._states: dict[str, TransactionMetadata] = {}
        self._numbers: dict[str, int] = {}
        self._reserved: dict[str, int] = {}
        """The numbers of transactions that leaders will have begun."""
        self._begun = 0
        self._producer_ids = _FIRST_PRODUCER_ID
        self._office = _Office(self, 0)
        self.completed = 0

    async def run(self) -> None:
        """Looks for leaders, for transactions whose time is up, and now and then moves."""
        while True:
            await self.look()
            await self.pause(0.1)
            is_due = self.world.chance(0.3 if self._has_prepared else 0.02)
            if is_due and not self.clients.is_stopping:
                self._move()
            for transactional_id, found in sorted(self._states.items()):
                overdue = decisions.time_out(found, self._now_ms(), version=TRANSACTIONS_V2)
                if isinstance(overdue, decisions.Write):
                    self._write(transactional_id, overdue.transaction)

    @property
    def _has_prepared(self) -> bool:
        return any(found.is_prepared for found in self._states.values())

    @property
    def has_work(self) -> bool:
        return any(found.state not in AT_REST for found in self._states.values())

    def tip(self, tp: TopicPartition) -> TopicIdPartition | None:
        """Return the partition that the quorum has under this name now; None if there is none."""
        topic = self.quorum.image.topics.get(tp.topic)
        return None if topic is None else TopicIdPartition(topic.topic_id, tp.partition)

    # -- what is asked of it -----------------------------------------------------------------------

    async def init_producer(self, transactional_id: str, timeout_ms: int) -> ProducerEpoch | None:
        """None: what was open before does not end."""
        new_id = None
        for _ in range(_TRIES):
            await self.pause(0.005)
            found = self._states.get(transactional_id)
            decision = decisions.init_producer(found, None, timeout_ms, self._now_ms(), new_id)
            if isinstance(decision, decisions.NeedsProducerId):
                self._producer_ids += 1
                new_id = self._producer_ids
            elif self._carry_out(transactional_id, decision) == errors_pb2.NONE:
                state = self._states[transactional_id]
                return ProducerEpoch(state.producer_id, state.epoch)
            else:
                await self.pause(0.1)
        return None

    async def add_partitions(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Set[TopicPartition]
    ) -> int:
        """A Kafka error code."""
        await self.pause(0.005)
        found = self._states.get(transactional_id)
        decision = decisions.add_partitions(found, producer, partitions, self._now_ms())
        return self._carry_out(transactional_id, decision)

    async def end(self, transactional_id: str, producer: ProducerEpoch, *, commit: bool) -> int:
        """A Kafka error code."""
        await self.pause(0.005)
        found = self._states.get(transactional_id)
        decision = decisions.end(found, producer, self._now_ms(), commit=commit)
        return self._carry_out(transactional_id, decision)

    async def end_in_next_epoch(
        self, transactional_id: str, producer: ProducerEpoch, *, commit: bool
    ) -> ProducerEpoch | None:
        """Return who goes on, with transactions v2; None: it was not ended so."""
        await self.pause(0.005)
        found = self._states.get(transactional_id)
        decision = end_in_next_epoch(found, producer, self._now_ms(), commit=commit)
        if self._carry_out(transactional_id, decision) != errors_pb2.NONE:
            return None
        return self._states[transactional_id].next_producer

    def number_of_next(self, transactional_id: str) -> int:
        """Return the number of the transaction that the next batch of the producer begins."""
        self._begun += 1
        self._reserved[transactional_id] = self._begun
        return self._begun

    def number_of(self, transactional_id: str) -> int:
        """Return the number of its newest transaction."""
        return self._numbers[transactional_id]

    async def verify(self, batch: TransactionBatch) -> None:
        """Verify the batch of any broker, in place of ``PartitionVerifier.verify``."""
        await asyncio.sleep(self.world.random.choice([0.001, 0.01, 0.2]))
        producer = ProducerEpoch(batch.producer_id, batch.producer_epoch)
        found = self._states.get(batch.transactional_id)
        code: int = errors_pb2.REQUEST_TIMED_OUT
        if self.world.chance(0.05):
            raise refusal(batch, code)
        if batch.support is TransactionSupport.ADDED:
            decision = decisions.add_partitions(
                found, producer, {batch.tp}, self._now_ms(), TRANSACTIONS_V2
            )
            code = self._carry_out(batch.transactional_id, decision)
        else:
            code = decisions.verify(found, producer, {batch.tp})[batch.tp]
        if code != errors_pb2.NONE:
            raise refusal(batch, code)

    # -- what it does ------------------------------------------------------------------------------

    def _carry_out(
        self, transactional_id: str, decision: decisions.Decision | decisions.NeedsProducerId
    ) -> int:
        match decision:
            case decisions.Refused(code):
                return code
            case decisions.Write(transaction, code):
                self._write(transactional_id, transaction)
                return code
        return errors_pb2.NONE

    def _write(self, transactional_id: str, transaction: TransactionMetadata) -> None:
        before = self._states.get(transactional_id)
        self._states[transactional_id] = transaction
        was_open = before is not None and before.state is TransactionState.ONGOING
        if transaction.state is TransactionState.ONGOING and not was_open:
            reserved = self._reserved.pop(transactional_id, None)
            self._begun += reserved is None
            self._numbers[transactional_id] = reserved or self._begun
        if transaction.is_prepared:
            self.world.note(f"{transactional_id}: {transaction.state.title}, {transaction[:2]}")
            if was_open:
                number = self._numbers[transactional_id]
                self._outcomes.decide(number, commit=transaction.is_commit)
            self._finish(transactional_id, transaction)

    def _finish(self, transactional_id: str, prepared: TransactionMetadata) -> None:
        self.clients.spawn(self._send_markers(self._office, transactional_id, prepared))

    async def _send_markers(
        self, office: _Office, transactional_id: str, prepared: TransactionMetadata
    ) -> None:
        try:
            await office.sender.send(
                transactional_id,
                office.epoch,
                prepared.producer_id,
                prepared.epoch,
                prepared.is_commit,
                sorted(prepared.partitions),
                prepared.client_version,
            )
        except KafkaError as error:
            if office is self._office:
                raise Violation(
                    f"the only coordinator was told {error_name(error.code)}: {error.message}"
                ) from error
            return
        if office is self._office and self._states[transactional_id] == prepared:
            completed = decisions.complete(prepared, self._now_ms())
            self._states[transactional_id] = completed.transaction
            self.completed += 1

    def _move(self) -> None:
        """Move the coordinator's partition to another broker. The former one does not know it
        yet."""
        former = self._office
        self._office = _Office(self, former.epoch + 1)
        self.world.note(f"transactions have another coordinator, epoch {self._office.epoch}")
        seconds = self.world.random.choice([0.0, 0.5, 3.0, 3.0])
        self.world.after(
            seconds, partial(self.clients.host.deliver, self.clients.process, former.sender.close)
        )
        for transactional_id, found in sorted(self._states.items()):
            if found.is_prepared:
                self._finish(transactional_id, found)
                self.clients.spawn(self._go_on(former, transactional_id, found))

    async def _go_on(
        self, former: _Office, transactional_id: str, prepared: TransactionMetadata
    ) -> None:
        """It was stopped before it sent these markers, and has not heard of its successor."""
        await self.pause(1.0)
        await self._send_markers(former, transactional_id, prepared)

    def _now_ms(self) -> int:
        return int(self.world.now * 1_000)
