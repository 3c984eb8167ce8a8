"""Producers: those that give a retry no thought, and those that number their batches (KIP-98)."""

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from quorate.common.types import TopicIdPartition
from quorate_proto.v1 import errors_pb2
from tests.sim.cluster.client import Client, TopicPart
from tests.sim.cluster.lives import Life
from tests.sim.world import Violation
from tests.support.record_batches import Record, encode_batch

if TYPE_CHECKING:
    from tests.sim.cluster.clients import Clients

_FIRST_ID: Final = 1_000
_TRIES: Final = 8


class Producer(Client):
    """One record at a time, each a value of its own, until it is acknowledged."""

    def __init__(self, clients: "Clients", number: int, pace_s: float) -> None:
        super().__init__(clients, number)
        self._pace_s = pace_s
        self._sent = 0
        self._last: dict[Life, int] = {}

    async def run(self) -> None:
        while not self.clients.is_stopping:
            await self.pause(self._pace_s)
            if not self.leaders or self.world.chance(0.02):
                await self.look()
            if self.leaders:
                await self._produce(self.world.random.choice(sorted(self.leaders)))
        self.is_idle = True

    async def _produce(self, tp: TopicPart) -> None:
        self._sent += 1
        value = b"<%d.%d>" % (self.number, self._sent)
        acks = 1 if self.world.chance(0.1) else -1
        records = 1 + (self.world.random.random() < 0.2)
        batch = encode_batch([Record(number, value=value) for number in range(records)])
        for _ in range(6):
            known = self.leaders.get(tp)
            if known is None:
                return
            answer = None
            if known[1] >= 0:
                answer = await self.call(known[1], "Produce", (tp, batch, acks, 1_500))
            if answer is not None and answer[0] == errors_pb2.NONE:
                if acks == -1:
                    self._acknowledged(TopicIdPartition(*answer[2]), answer[1], value, answer[3])
                return
            if answer is not None:
                self.check_code(answer[0], "Produce")
            await self.pause(0.1)
            await self.look()

    def _acknowledged(self, tip: TopicIdPartition, offset: int, value: bytes, epoch: int) -> None:
        checker = self.clients.checker
        checker.acked(tip, offset, value, epoch)
        life = checker.truths.lives.of(tip, epoch)
        if offset <= self._last.get(life, -1) and not checker.truths.of(tip, epoch).is_lossy:
            raise Violation(f"{value!r} was acknowledged at {offset}, behind an earlier one")
        self._last[life] = offset


class IdempotentProducer(Producer):
    """Up to five batches in flight; sends again, in order, what was not acknowledged.

    It may well find out that a batch was taken at the first try. When it gives up it does not know
    what became of a batch: then it goes on in a new epoch. When it is told NOT_ENOUGH_REPLICAS it
    may rely on it, as librdkafka does, that the batch is not there: then it sends the records again
    in a new epoch. ``ProducerOrder`` sees to it that they are committed once. It relies on it only
    where the leader that it asked first has led all the time: the log of another one may have it.
    """

    def __init__(self, clients: "Clients", number: int, pace_s: float) -> None:
        super().__init__(clients, number, pace_s)
        self._epoch = 0
        self._sequences: dict[TopicIdPartition, int] = {}
        self._believes = self.world.random.choice([0.0, 0.5, 0.5, 0.5])
        """The chance that it takes NOT_ENOUGH_REPLICAS at its word and begins anew."""

    async def _produce(self, tp: TopicPart) -> None:
        topic_id, leader, _ = self.leaders[tp]
        if leader < 0:
            return
        tip = TopicIdPartition(topic_id, tp[1])  # type: ignore[arg-type]
        first = self._sequences.get(tip, 0)
        in_flight = 1 if first == 0 else self.world.random.choice([1, 1, 2, 5])
        sent = [self._next_batch(first + number) for number in range(in_flight)]
        answers = await asyncio.gather(
            *(self.call(leader, "Produce", (tp, one.records, -1, 1_500)) for one in sent)
        )
        for one, answer in zip(sent, answers, strict=True):
            outcome = await self._settle(tp, tip, one, leader, answer)
            if outcome is _Outcome.TAKEN:
                continue
            self._epoch += 1
            self._sequences.clear()
            if outcome is _Outcome.NOT_TAKEN:
                await self._send_anew(tp, one.value)
            return
        self._sequences[tip] = first + in_flight

    async def _send_anew(self, tp: TopicPart, value: bytes) -> None:
        """The records of a batch that is not there, as another batch, until that one is there."""
        for _ in range(_TRIES):
            known = self.leaders.get(tp)
            if known is None or known[1] < 0:
                return
            topic_id, leader, _ = known
            tip = TopicIdPartition(topic_id, tp[1])  # type: ignore[arg-type]
            batch = self._batch(value, 0)
            answer = await self.call(leader, "Produce", (tp, batch.records, -1, 1_500))
            outcome = await self._settle(tp, tip, batch, leader, answer)
            if outcome is _Outcome.TAKEN:
                self._sequences[tip] = 1
                return
            self._epoch += 1
            if outcome is _Outcome.UNKNOWN or self.clients.is_stopping:
                return
            await self.pause(0.5)

    def _next_batch(self, sequence: int) -> "_Sent":
        self._sent += 1
        return self._batch(b"<%d.%d>" % (self.number, self._sent), sequence)

    def _batch(self, value: bytes, sequence: int) -> "_Sent":
        producer = (_FIRST_ID + self.number, self._epoch, sequence)
        return _Sent(value, encode_batch([Record(0, value=value)], producer=producer))

    async def _settle(
        self, tp: TopicPart, tip: TopicIdPartition, sent: "_Sent", leader: int, answer: Any
    ) -> "_Outcome":
        """Find out what became of a batch. It is sent again until that is known, or ``_TRIES``
        times."""
        first_epoch = None
        is_sure = True
        for _ in range(_TRIES):
            if answer is None:
                is_sure = False  # It may come there yet.
            elif answer[0] == errors_pb2.NONE:
                told = TopicIdPartition(*answer[2])
                self._acknowledged(told, answer[1], sent.value, answer[3])
                return _Outcome.TAKEN if told == tip else _Outcome.UNKNOWN
            else:
                self.check_code(answer[0], "Produce")
                first_epoch = answer[3] if first_epoch is None else first_epoch
                has_led_since = self.clients.checker.metadata.has_led_since
                is_sure = is_sure and has_led_since(tip, leader, first_epoch)
                is_refused = answer[0] == errors_pb2.NOT_ENOUGH_REPLICAS
                if is_refused and is_sure and self.world.chance(self._believes):
                    return _Outcome.NOT_TAKEN
            await self.pause(0.1)
            await self.look()
            known, answer = self.leaders.get(tp), None
            if known is not None and known[1] >= 0:
                leader = known[1]
                answer = await self.call(leader, "Produce", (tp, sent.records, -1, 1_500))
        return _Outcome.UNKNOWN


class _Sent(NamedTuple):
    """A batch, and the value that is in it alone."""

    value: bytes
    records: bytes


class _Outcome(Enum):
    """The fate of a batch, as far as its producer knows it."""

    TAKEN = auto()
    NOT_TAKEN = auto()
    UNKNOWN = auto()
