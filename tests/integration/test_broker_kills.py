"""kill -9 of brokers at random, again and again, under acks=all load.

Segments are as small as they may be and one topic keeps little, so that kills meet rolls, footers,
later starts of logs and unlinked segments all the time. Nothing acknowledged is lost, the order of
each partition is kept, and what the brokers hold in the end is the same, byte for byte.
"""

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from quorate.broker.log.recovery.examination import examine
from quorate.client.results import NewTopic
from quorate.common.types import TopicId, TopicIdPartition
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import (
    AckedLoad,
    Consumed,
    acked_load,
    assert_nothing_lost,
    assert_nothing_twice,
    assert_order_kept,
    consume_all,
)
from tests.support.broker_kills import Kills
from tests.support.stored_logs import Batches, stored_batches
from tests.support.whole_cluster import wait_until_whole

pytestmark = pytest.mark.integration

PARTITIONS = 3
KEPT, SHORT = "kept", "short"
"""Topics: of one everything is kept, of the other little."""
SHORT_BYTES = 200_000
SEGMENT_BYTES = 1 << 20


def create_topics(cluster: RunningCluster) -> dict[str, bytes]:
    """Topic ids by name."""
    short = {"retention.bytes": str(SHORT_BYTES)}
    new = [
        NewTopic(name=KEPT, num_partitions=PARTITIONS, replication_factor=3),
        NewTopic(name=SHORT, num_partitions=PARTITIONS, replication_factor=3, configs=short),
    ]
    with cluster.admin() as admin:
        for result in admin.create_topics(new):
            result.raise_for_error()
        return {topic.name: topic.topic_id for topic in admin.describe_topics([KEPT, SHORT])}


def beginnings(consumed: Consumed) -> dict[int, int]:
    """The lowest offset that was read of each partition."""
    offsets = [(p, offset) for places in consumed.values() for p, offset, _ in places]
    return {p: min(offset for q, offset in offsets if q == p) for p in range(PARTITIONS)}


def assert_equal(
    copies: Sequence[Mapping[TopicIdPartition, Batches]], tip: TopicIdPartition
) -> None:
    """All copies of a log are the same from where the latest of them begins."""
    logs = [copy[tip] for copy in copies]
    start = max(min(log, default=0) for log in logs)
    first, *others = [{at: data for at, data in log.items() if at >= start} for log in logs]
    assert first, f"{tip}: nothing is there"
    for other in others:
        differing = sorted(at for at, _ in first.items() ^ other.items())
        assert not differing, f"{tip}: copies differ at {differing[:10]}"


def assert_sound(folder: Path) -> None:
    """``quorate log verify`` has nothing to say; segments were unlinked and sealed."""
    examined = examine(folder)
    assert not examined.problems
    ids = [segment.segment_id for segment in examined.segments]
    assert min(ids) > 1 or len(ids) < max(ids), f"no segment was unlinked: {ids}"


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(8, marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
        pytest.param(120, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)]),
    ],
)
async def test_d1_d3_kill_9_of_brokers_loses_nothing_and_copies_stay_equal(kills: int) -> None:
    seed = int(os.environ.get("QUORATE_KILLS_SEED", "0")) or secrets.randbelow(2**31)
    with running_cluster(
        brokers=3,
        log_segment_bytes=SEGMENT_BYTES,
        log_retention_check_interval_ms=200,
    ) as cluster:
        topic_ids = create_topics(cluster)
        wait_until_whole(cluster)
        try:
            check(cluster, kills, seed)
            for broker_id in cluster.broker_ids:
                cluster.stop_broker(broker_id)
            folders = [cluster.folder / f"broker-{b}" for b in cluster.broker_ids]
            copies = [await stored_batches(folder) for folder in folders]
            for topic_id in topic_ids.values():
                for partition in range(PARTITIONS):
                    assert_equal(copies, TopicIdPartition(TopicId(topic_id), partition))
            for folder in folders:
                assert_sound(folder)
        except AssertionError as error:
            raise AssertionError(f"QUORATE_KILLS_SEED={seed}: {error}") from error


def check(cluster: RunningCluster, kills: int, seed: int) -> None:
    """Kill brokers under load, then read everything back."""
    bootstrap = cluster.bootstrap

    def load_of(topic: str, repeats: int) -> AbstractContextManager[AckedLoad]:
        return acked_load(
            *(bootstrap, topic, PARTITIONS),
            repeats=repeats,
            socket_timeout_ms=2_000,
            enable_idempotence="true",
        )

    with load_of(KEPT, 64) as kept, load_of(SHORT, 256) as short:
        for load in (kept, short):
            load.wait_for_more(20)
        Kills(cluster, seed).go_on(kills, [kept, short])
        wait_until_whole(cluster)
        for load in (kept, short):
            load.wait_for_more(20)
        acknowledged = {KEPT: kept.stop(), SHORT: short.stop()}
    consumed = {topic: consume_all(bootstrap, topic, PARTITIONS) for topic in acknowledged}
    starts: dict[str, dict[int, int]] = {KEPT: {}, SHORT: beginnings(consumed[SHORT])}
    for topic, promised in acknowledged.items():
        assert_nothing_lost(promised, consumed[topic], starts[topic])
        assert_nothing_twice(consumed[topic])
        assert_order_kept(promised)
    assert all(start > 0 for start in starts[SHORT].values()), "nothing was retired"
