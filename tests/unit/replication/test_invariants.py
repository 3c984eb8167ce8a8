"""A replica that breaks an invariant stops, says so and leaves its ISR; all others go on."""

import asyncio
from collections.abc import Callable

import pytest

from quorate.broker.replication.hosting.hosted_partition import HostedPartition, PartitionFetcher
from quorate.broker.replication.partition.isr import IsrState
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import BrokerId, LeaderEpoch
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas, tip_of
from tests.support.replica_cluster import batch

Break = Callable[[HostedPartition], None]


def _high_watermark_falls(hosted: HostedPartition) -> None:
    hosted.replica.high_watermark -= 1


def _high_watermark_before_the_start(hosted: HostedPartition) -> None:
    hosted.log.log_start_offset = hosted.replica.high_watermark + 1


def _high_watermark_beyond_the_disk(hosted: HostedPartition) -> None:
    hosted.replica.high_watermark = hosted.log.flushed_offset + 1


def _flushed_beyond_the_end(hosted: HostedPartition) -> None:
    hosted.log.flushed_offset = hosted.log.log_end_offset + 1


def _epoch_falls(hosted: HostedPartition) -> None:
    hosted.replica.leader_epoch = LeaderEpoch(hosted.replica.leader_epoch - 1)


def _isr_without_leader(hosted: HostedPartition) -> None:
    hosted.replica.isr = IsrState((BrokerId(2),), hosted.replica.isr.version)


def _isr_beyond_the_assigned(hosted: HostedPartition) -> None:
    hosted.replica.isr = IsrState((BrokerId(1), BrokerId(9)), hosted.replica.isr.version)


def _version_falls(hosted: HostedPartition) -> None:
    hosted.replica.isr = IsrState(hosted.replica.isr.committed, hosted.replica.isr.version - 1)


def _stable_offset_falls(hosted: HostedPartition) -> None:
    # The next event moves the high watermark, and finds the stable offset behind where it was.
    hosted.log.stable_offset = lambda high_watermark: 0 * high_watermark  # type: ignore[method-assign]


def _stable_beyond_the_high_watermark(hosted: HostedPartition) -> None:
    hosted.log.stable_offset = lambda high_watermark: high_watermark + 1  # type: ignore[method-assign]


BREAKS: dict[Break, str] = {
    _high_watermark_falls: "never fall",
    _high_watermark_before_the_start: "log start <= high watermark",
    _high_watermark_beyond_the_disk: "high watermark <= flushed",
    _flushed_beyond_the_end: "flushed offset <= log end",
    _epoch_falls: "leader epochs never fall",
    _isr_without_leader: "the ISR has its leader",
    _isr_beyond_the_assigned: "assigned replicas alone",
    _version_falls: "version of a leadership never falls",
    _stable_offset_falls: "never fall",
    _stable_beyond_the_high_watermark: "last stable offset <= high watermark",
}


async def _two_leaders() -> BrokerReplicas:
    broker = await BrokerReplicas().start()
    for topic in ("orders", "payments"):
        await broker.lead(topic, epoch=3, version=5, isr=(1, 2), replicas=(1, 2))
        await broker.produce(topic, batch("a"), acks=0)
        broker.store.flush()
        broker.follower(2).send(topic, fetch=1, epoch=3)
        assert broker.hosted(topic).replica.high_watermark == 1
    return broker


async def _commit_one_more(broker: BrokerReplicas, topic: str) -> None:
    await broker.produce(topic, batch("b"), acks=0)
    broker.store.flush()
    broker.follower(2).send(topic, fetch=2, epoch=3)


@pytest.mark.parametrize("break_it", BREAKS)
async def test_a_leader_that_breaks_an_invariant_stops_and_the_others_go_on(
    break_it: Break, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await _two_leaders()
    hosted = broker.hosted("orders")
    break_it(hosted)
    broker.manager.table.run(hosted, ())
    if hosted.leads:
        await _commit_one_more(broker, "orders")
    assert not hosted.leads
    assert BREAKS[break_it] in hosted.broken
    assert "orders-0" in hosted.broken
    assert BREAKS[break_it] in caplog.text
    assert broker.manager.damaged() == [tip_of("orders")], "the controller is told"
    assert hosted.is_damaged, "status and metrics show it"
    (reported,) = hosted.log.reported  # type: ignore[attr-defined]
    assert isinstance(reported, BrokenInvariant)
    refused = await broker.produce("orders", batch("c"))
    assert refused.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER

    await _commit_one_more(broker, "payments")
    assert broker.hosted("payments").replica.high_watermark == 2
    assert broker.hosted("payments").leads
    await broker.close()


async def test_who_waits_for_a_replica_that_stops_is_answered() -> None:
    broker = await _two_leaders()
    hosted = broker.hosted("orders")
    waiting = asyncio.create_task(broker.produce("orders", batch("b")))
    await asyncio.sleep(0)
    _epoch_falls(hosted)
    broker.store.flush()
    outcome = await asyncio.wait_for(waiting, 5)
    assert outcome.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
    assert not hosted.leads
    await broker.close()


def _fetcher_of(hosted: HostedPartition) -> PartitionFetcher | None:
    return hosted.fetcher


async def test_a_broken_replica_leads_no_more_and_follows_only_afresh() -> None:
    broker = await _two_leaders()
    hosted = broker.hosted("orders")
    _high_watermark_falls(hosted)
    broker.manager.table.run(hosted, ())
    assert not hosted.leads
    again = await broker.command("orders", leader=1, epoch=4, isr=(1, 2), replicas=(1, 2))
    assert again == errors_pb2.KAFKA_STORAGE_ERROR
    assert await broker.command("orders", leader=2, epoch=5, isr=(1, 2), replicas=(1, 2)) == 0
    assert _fetcher_of(hosted) is None, "it is still in the ISR: nothing may rely on its log"
    assert await broker.command("orders", leader=2, epoch=6, isr=(2,), replicas=(1, 2)) == 0
    fetcher = _fetcher_of(hosted)
    assert fetcher is not None
    assert fetcher.is_starting_over(hosted)
    hosted.forget_damage()
    assert not hosted.broken
    await broker.close()


async def test_a_log_that_breaks_an_invariant_in_an_append_stops_its_replica_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await _two_leaders()
    hosted = broker.hosted("orders")

    def refuse(*_: object) -> None:
        raise BrokenInvariant("orders-0", "a batch begins at the log end (C12)", base_offset=7)

    monkeypatch.setattr(hosted.log, "append_as_leader", refuse)
    outcome = await broker.produce("orders", batch("b"))
    assert outcome.error_code == errors_pb2.KAFKA_STORAGE_ERROR
    assert "a batch begins at the log end" in (outcome.error_message or "")
    assert not hosted.leads
    await _commit_one_more(broker, "payments")
    assert broker.hosted("payments").replica.high_watermark == 2
    await broker.close()
