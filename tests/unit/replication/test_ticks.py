"""Who looks at the clock: leaders to whom something has happened, nobody else (C13)."""

import pytest

from quorate.broker.log.compaction.log_selection import CompactionOptions
from quorate.broker.replication.partition.effects import Effect
from quorate.broker.replication.partition.partition_replica import PartitionReplica
from quorate.metadata_log.records import ResultCode
from tests.support.broker_replicas import BrokerReplicas, tip_of
from tests.support.replica_cluster import batch
from tests.unit.replication.test_isr_writer import ScriptedQuorum, connect
from tests.unit.replication.test_produce import settle


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Topics of the replicas that a tick asked, in order."""
    asked: list[str] = []
    original = PartitionReplica.tick

    def tick(replica: PartitionReplica, now_ms: int) -> tuple[Effect, ...]:
        asked.append(replica.tp.topic)
        return original(replica, now_ms)

    monkeypatch.setattr(PartitionReplica, "tick", tick)
    return asked


def ticks(broker: BrokerReplicas, looked_at: list[str]) -> list[str]:
    """Whom one tick asks."""
    looked_at.clear()
    broker.manager.table.tick()
    return list(looked_at)


async def lead_in_sync(broker: BrokerReplicas, topic: str) -> None:
    """Both replicas are in the ISR and at the end of an empty log."""
    await broker.lead(topic, isr=(1, 2), replicas=(1, 2))
    broker.follower(2).send(topic)


async def test_c13_an_idle_partition_is_left_alone(
    broker: BrokerReplicas, looked_at: list[str]
) -> None:
    await lead_in_sync(broker, "orders")
    await lead_in_sync(broker, "bills")
    assert ticks(broker, looked_at) == ["orders", "bills"]
    assert ticks(broker, looked_at) == []
    await broker.produce("bills", batch("a"), acks=0)
    broker.store.flush(tip_of("bills"))
    assert ticks(broker, looked_at) == ["bills"]
    assert ticks(broker, looked_at) == ["bills"], "its follower has not got the record"
    broker.follower(2).send("bills", fetch=1)
    assert ticks(broker, looked_at) == ["bills"]
    assert ticks(broker, looked_at) == []


async def test_c13_a_member_that_never_fetched_is_waited_for_until_it_lags(
    broker: BrokerReplicas, looked_at: list[str]
) -> None:
    quorum = ScriptedQuorum()
    connect(broker, quorum)
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    assert ticks(broker, looked_at) == ticks(broker, looked_at) == ["orders"]
    broker.now_ms = 100_001
    assert ticks(broker, looked_at) == ["orders"]
    await settle()
    assert broker.hosted("orders").replica.isr.committed == (1,)
    assert ticks(broker, looked_at) == ["orders"]
    assert ticks(broker, looked_at) == []


async def test_c13_a_member_that_comes_back_with_less_is_not_left_alone(
    broker: BrokerReplicas, looked_at: list[str]
) -> None:
    connect(broker, ScriptedQuorum())
    await lead_in_sync(broker, "orders")
    await broker.produce("orders", batch("a"), acks=0)
    broker.store.flush()
    broker.follower(2).send("orders", fetch=1)
    ticks(broker, looked_at)
    assert ticks(broker, looked_at) == []
    broker.follower(2).send("orders", fetch=0, broker_epoch=11)
    broker.now_ms = 100_001
    assert ticks(broker, looked_at) == ["orders"]
    await settle()
    assert broker.hosted("orders").replica.isr.committed == (1,)


async def test_c13_a_refused_change_is_tried_again_without_any_event(
    broker: BrokerReplicas, looked_at: list[str]
) -> None:
    quorum = ScriptedQuorum(ResultCode.INELIGIBLE_REPLICA)
    connect(broker, quorum)
    await broker.lead("orders", isr=(1,), replicas=(1, 2))
    broker.follower(2).send("orders")
    await settle()
    assert len(quorum.transactions) == 1
    assert ticks(broker, looked_at) == ["orders"]
    broker.now_ms = 1_000
    assert ticks(broker, looked_at) == ["orders"]
    await settle()
    assert broker.hosted("orders").replica.isr.committed == (1, 2)


@pytest.mark.parametrize("own", [True, False])
async def test_scenario_14_limits_are_looked_up_as_soon_as_a_config_changes(
    broker: BrokerReplicas, looked_at: list[str], own: bool
) -> None:
    await lead_in_sync(broker, "orders")
    ticks(broker, looked_at)
    broker.limits.min_insync, broker.limits.batch_bytes, broker.limits.lag_time = 2, 100, 7
    broker.limits.compacted = CompactionOptions()
    looked_at.clear()
    broker.manager.configs_changed({"payments"})
    assert looked_at == [], "another topic's alone"
    broker.manager.configs_changed({"orders"} if own else None)
    assert looked_at == ["orders"]
    hosted = broker.hosted("orders")
    assert hosted.replica.min_insync_replicas == 2
    assert hosted.replica.lag_time_max_ms == 7
    assert hosted.log.max_batch_bytes == 100
    assert hosted.log.needs_keys


async def test_a_tick_that_fails_leaves_nobody_out_of_the_next(
    broker: BrokerReplicas, looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("orders", "bills", "carts"):
        await broker.lead(topic, isr=(1, 2), replicas=(1, 2))
    hosted = broker.hosted("bills")
    replica, hosted.replica = hosted.replica, None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        broker.manager.table.tick()
    hosted.replica = replica
    assert sorted(ticks(broker, looked_at)) == ["bills", "carts", "orders"]
