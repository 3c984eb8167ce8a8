"""Replicas that are being moved are copied no faster than allowed, and nothing else is slowed."""

import pytest

from quorate.broker.log.batches.record_batch import patched
from quorate.broker.replication.fetching.fetch_session_handler import FetchSessionHandler
from quorate.broker.replication.fetching.partition_fetch_state import (
    PartitionFetchState,
)
from quorate.broker.replication.hosting.replication_throttle import (
    BURST_MS,
    RECHECK_MS,
    UNLIMITED,
    ReplicationThrottle,
)
from quorate.broker.replication.streams.fetch_messages import FetchedPartition
from quorate.common.types import BrokerId, LeaderEpoch, TopicIdPartition, TopicPartition
from tests.support.broker_replicas import BrokerReplicas, FollowerStream
from tests.support.fetch_states import followed
from tests.support.fixed_limits import FixedThrottle
from tests.support.metadata import topic_id_of
from tests.support.replica_cluster import batch

RATE = 1_000


def throttle(rate: int = RATE) -> ReplicationThrottle:
    """Covers the topic "moved"."""
    return ReplicationThrottle(FixedThrottle(rate))


# --- the bucket ---------------------------------------------------------------------------------


def test_c11_a_debt_is_waited_off_at_the_rate() -> None:
    bucket = throttle()
    assert bucket.wait_ms(0) == 0
    bucket.take(500, 0)
    assert bucket.wait_ms(0) == 501
    assert bucket.wait_ms(400) == 101
    assert bucket.wait_ms(500) == 0


def test_c11_a_pause_allows_a_burst_of_one_second_at_most() -> None:
    bucket = throttle()
    bucket.take(0, 0)
    bucket.take(RATE * BURST_MS // 1_000, 100 * BURST_MS)
    assert bucket.wait_ms(100 * BURST_MS) == 0
    bucket.take(1, 100 * BURST_MS)
    assert bucket.wait_ms(100 * BURST_MS) > 0


def test_c11_a_long_debt_is_looked_at_again_in_time() -> None:
    config = FixedThrottle(1, topic="t")
    bucket = ReplicationThrottle(config)
    bucket.take(1_000_000, 0)
    assert bucket.wait_ms(0) == RECHECK_MS
    config.rate_now = 0
    assert bucket.wait_ms(0) == RECHECK_MS
    config.rate_now = UNLIMITED
    assert bucket.wait_ms(0) == 0
    assert not bucket.covers(TopicPartition("t", 0)), "nothing is, without a limit"
    config.rate_now = RATE
    assert bucket.wait_ms(1) == 0, "an old debt is forgotten with the limit"


# --- a leader -----------------------------------------------------------------------------------


@pytest.fixture
def leader(broker: BrokerReplicas) -> BrokerReplicas:
    broker.limits.leader_throttle.rate_now = RATE
    return broker


async def fill(broker: BrokerReplicas, topic: str, isr: tuple[int, ...], batches: int = 3) -> None:
    """Broker 1 leads the topic, which has so many batches of 1,000 bytes and more."""
    await broker.lead(topic, isr=isr, replicas=(1, 2))
    for _ in range(batches):
        await broker.produce(topic, batch("x" * 1_000), acks=0)
    broker.store.flush()


async def held_back(leader: BrokerReplicas) -> FollowerStream:
    """A follower that has fetched more of "moved" than it may in a while, and is to wait."""
    await fill(leader, "moved", isr=(1,))
    stream = leader.follower(2)
    for offset in range(2):
        stream.send("moved", fetch=offset, max_bytes=1_100)
        stream.receive()
    return stream


async def test_c11_a_leader_sends_throttled_replicas_no_faster_than_allowed(
    leader: BrokerReplicas,
) -> None:
    await fill(leader, "moved", isr=(1,))
    await fill(leader, "other", isr=(1,))
    stream = leader.follower(2)
    stream.send("moved", max_bytes=1_100)
    assert stream.receive()[1]
    stream.send("moved", fetch=1, max_bytes=1_100)
    stream.receive()
    stream.send()
    assert not stream.has_news()
    assert 0 < stream.session.throttled_ms <= RECHECK_MS
    stream.send("other", max_bytes=1_100)
    (partition,), _ = stream.receive()
    assert partition.tip.topic_id == topic_id_of("other"), "others go on"
    leader.now_ms += 3_000
    stream.send()
    assert stream.has_news()
    (partition,), records = stream.receive()
    assert partition.tip.topic_id == topic_id_of("moved")
    assert records
    assert not stream.session.throttled_ms


async def test_c11_a_short_log_is_not_copied_as_a_whole_before_the_rate_counts(
    leader: BrokerReplicas,
) -> None:
    await fill(leader, "moved", isr=(1,), batches=10)
    stream = leader.follower(2)
    stream.send("moved", max_bytes=1 << 20)
    (partition,), records = stream.receive()
    assert 1_000 < len(records) < 2_000, "one batch has what a second allows"
    await fill(leader, "other", isr=(1, 2), batches=10)
    stream.send("other", max_bytes=1 << 20)
    (partition,), records = stream.receive()
    assert partition.size > 10_000, "an answer with what is not throttled is as long as it may be"


async def test_c11_whoever_asks_while_replicas_are_held_back_has_the_time_to_wait_looked_at(
    leader: BrokerReplicas,
) -> None:
    stream = await held_back(leader)
    assert stream.session.throttled_ms, "sooner than a long poll ends"
    woken = stream.wakes
    stream.send()
    assert stream.wakes == woken + 1


async def test_c11_a_leader_never_throttles_a_member_of_the_isr(leader: BrokerReplicas) -> None:
    await fill(leader, "moved", isr=(1, 2))
    stream = leader.follower(2)
    for offset in range(3):
        stream.send("moved", fetch=offset, max_bytes=1_100)
        assert stream.receive()[1]


async def test_c11_a_leader_forgets_who_waits_when_its_position_goes(
    leader: BrokerReplicas,
) -> None:
    stream = await held_back(leader)
    assert stream.session.throttled_ms
    stream.send("moved", forget=True)
    leader.now_ms += 3_000
    assert not stream.has_news()


# --- a follower ---------------------------------------------------------------------------------


class FollowerSide:
    """Broker 1 follows topics at broker 2; the frames between them are the test's."""

    def __init__(self, broker: BrokerReplicas) -> None:
        self.broker = broker

    async def follow(self, topic: str) -> None:
        await self.broker.command(topic, leader=2, isr=(2,), replicas=(1, 2))
        self.check(topic)

    def check(self, topic: str) -> None:
        """Its log has been compared with the leader's."""
        following = self.following(topic)
        following.begin_fetching()
        self.session._on_checked(following)

    @property
    def session(self) -> FetchSessionHandler:
        return self.broker.manager._fetchers._fetchers[BrokerId(2)].session

    def following(self, topic: str) -> PartitionFetchState:
        return followed(self.broker.hosted(topic))

    def asks(self, topic: str) -> list[str]:
        """What the next request tells the leader: "moved@2", or "-moved" to forget it."""
        request = self.session.next_request()
        if request is None:
            return []
        names = {topic_id_of(name): name for name in ("moved", "other")}
        return [
            f"-{names[one.tip.topic_id]}"
            if one.forget
            else f"{names[one.tip.topic_id]}@{one.fetch_offset}"
            for one in request.positions
        ]

    def receive(self, topic: str, size: int, *, high_watermark: int = 1_000) -> None:
        """One batch of about ``size`` bytes comes, the next one in the log."""
        following = self.following(topic)
        data = patched(memoryview(batch("x" * size)), following.fetch_offset, LeaderEpoch(0))
        tip = TopicIdPartition(topic_id_of(topic), 0)
        fetched = FetchedPartition(tip, 0, high_watermark, 0, 0, len(data), (memoryview(data),))
        self.session.on_response([fetched])


@pytest.fixture
def follower(broker: BrokerReplicas) -> FollowerSide:
    broker.limits.follower_throttle.rate_now = RATE
    return FollowerSide(broker)


async def test_c11_a_follower_lets_its_leader_forget_what_has_to_wait(
    follower: FollowerSide,
) -> None:
    await follower.follow("moved")
    await follower.follow("other")
    assert follower.asks("moved") == ["moved@0", "other@0"]
    follower.receive("other", 5_000)
    assert follower.asks("moved") == ["other@1"], "others go on"
    follower.receive("moved", 2_000)
    assert follower.asks("moved") == ["-moved"]
    follower.broker.now_ms += 1_000
    follower.session._resume()
    assert follower.asks("moved") == [], "too early still"
    follower.broker.now_ms += 2_000
    follower.session._resume()
    assert follower.asks("moved") == ["moved@1"]


async def test_c11_what_was_under_way_is_appended_and_paid_for(follower: FollowerSide) -> None:
    await follower.follow("moved")
    follower.asks("moved")
    follower.receive("moved", 2_000)
    follower.receive("moved", 2_000)
    assert follower.following("moved").fetch_offset == 2
    follower.broker.store.flush()
    assert follower.asks("moved") == ["-moved"], "what is held says nothing, also when durable"
    follower.broker.now_ms += 3_000
    follower.session._resume()
    assert follower.asks("moved") == []
    follower.broker.now_ms += 2_000
    follower.session._resume()
    assert follower.asks("moved") == ["moved@2"]


async def test_c11_a_follower_in_sync_is_not_throttled(follower: FollowerSide) -> None:
    await follower.follow("moved")
    follower.asks("moved")
    follower.receive("moved", 5_000, high_watermark=0)
    assert follower.asks("moved") == ["moved@1"]
    follower.receive("moved", 5_000, high_watermark=1)
    assert follower.asks("moved") == ["moved@2"]


async def test_c11_a_partition_that_comes_later_waits_with_the_others(
    follower: FollowerSide,
) -> None:
    await follower.follow("other")
    await follower.follow("moved")
    follower.asks("moved")
    follower.receive("moved", 3_000)
    assert follower.asks("moved") == ["-moved"]
    follower.session._back_off(follower.following("moved"))
    follower.check("moved")
    assert "moved@1" not in follower.asks("moved")
    follower.broker.now_ms += 4_000
    follower.session._resume()
    assert follower.asks("moved") == ["moved@1"]


async def test_c11_who_is_held_and_goes_leaves_nothing_behind(follower: FollowerSide) -> None:
    await follower.follow("other")
    await follower.follow("moved")
    follower.asks("other")
    follower.receive("moved", 3_000)
    follower.asks("other")
    await follower.broker.stop("moved", epoch=0)
    assert follower.asks("other") == [], "the leader has forgotten it already"
    follower.broker.now_ms += 4_000
    follower.session._resume()
    assert follower.asks("other") == []
