"""What a coordinator tells of its groups: states, committed offsets, how far they are behind."""

import asyncio
from pathlib import Path

from quorate.broker.config.internal_topics import OFFSETS_TOPIC
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffset
from quorate.broker.metrics import group_metrics as groups
from quorate.broker.metrics.group_metrics import group_samples
from quorate.common.metrics.family import Sample
from quorate.common.types import TopicPartition
from tests.support.kafka_fakes import fake_broker

HERE, ELSEWHERE, AHEAD = (TopicPartition("orders", number) for number in range(3))


async def test_lag_is_what_is_committed_and_not_got_to(tmp_path: Path) -> None:
    inside = fake_broker(tmp_path)
    inside.metadata.add_topic(OFFSETS_TOPIC)
    coordinator = inside.services.groups
    while coordinator.is_loading:
        await asyncio.sleep(0)
    commits = {tp: CommittedOffset(40) for tp in (HERE, ELSEWHERE, AHEAD)}
    assert await coordinator.shard_of("g").commit("g", "", None, -1, commits) == 0

    samples = list(group_samples(coordinator, {HERE: 100, AHEAD: 7}.get))
    assert Sample(groups.GROUPS, 1, ("Empty",)) in samples
    assert Sample(groups.GROUPS, 0, ("Stable",)) in samples
    assert {s.labels: s.value for s in samples if s.family is groups.COMMITTED} == {
        ("g", "orders", str(number)): 40 for number in range(3)
    }
    assert {s.labels: s.value for s in samples if s.family is groups.LAG} == {
        ("g", "orders", "0"): 60,
        ("g", "orders", "2"): 0,
    }
