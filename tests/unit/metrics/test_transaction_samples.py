"""What a coordinator tells of its transactions: states, the oldest one, markers on their way."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from quorate.broker.config.internal_topics import TRANSACTIONS_TOPIC
from quorate.broker.coordinator.transactions.marker_sender import (
    MarkerSender,
    MarkerWrite,
    PartitionLeadership,
)
from quorate.broker.metrics import transaction_metrics as transactions
from quorate.broker.metrics.transaction_metrics import transaction_samples
from quorate.common.metrics.family import Family, Sample
from quorate.common.types import BrokerId, TopicPartition
from tests.support.kafka_fakes import fake_broker

TP = TopicPartition("orders", 0)
WALL_MS = 1_700_000_000_000


class NoLeaders:
    def leadership(self, tp: TopicPartition) -> PartitionLeadership | None:
        raise AssertionError(f"nobody asks who leads {tp}")

    async def is_gone(self, tp: TopicPartition) -> bool:
        raise AssertionError(f"nobody asks whether {tp} is gone")


async def no_writes(_broker: BrokerId, _writes: Sequence[MarkerWrite]) -> Sequence[int]:
    raise AssertionError("nobody writes markers")


async def test_states_are_counted_and_the_oldest_open_one_is_told(tmp_path: Path) -> None:
    inside = fake_broker(tmp_path)
    inside.metadata.add_topic(TRANSACTIONS_TOPIC)
    coordinator = inside.services.transactions
    while coordinator.is_loading:
        await asyncio.sleep(0)
    markers = MarkerSender(NoLeaders(), no_writes)
    markers.pending, markers.written = 3, 8

    def told(family: Family, *labels: str) -> object:
        samples = list(transaction_samples(coordinator, markers, WALL_MS + 2_500))
        (found,) = [s.value for s in samples if (s.family, s.labels) == (family, labels)]
        return found

    assert told(transactions.OLDEST) == 0
    for name in ("idle", "open"):
        shard = coordinator.shard_of(name)
        producer = await shard.init_producer(name, 60_000, None)
    assert await shard.add_partitions("open", producer, {TP}) == 0
    assert told(transactions.TRANSACTIONS, "Empty") == 1
    assert told(transactions.TRANSACTIONS, "Ongoing") == 1
    assert told(transactions.TRANSACTIONS, "CompleteAbort") == 0
    assert told(transactions.OLDEST) == 2.5
    samples = list(transaction_samples(coordinator, markers, WALL_MS))
    assert Sample(transactions.MARKERS_PENDING, 3) in samples
    assert Sample(transactions.MARKERS_WRITTEN, 8) in samples
    assert Sample(transactions.TIMED_OUT, 0) in samples
