"""Two and three replica managers over loopback gRPC, with logs on disk."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quorate.broker.log import LogAppendInfo, LogRead, Records, Retention
from quorate.broker.replication.api import DeleteRecordsPartition, ProduceEntry
from quorate.broker.replication.partition.effects import ReplicaRole
from quorate.broker.replication.serving.replica_fetch_session import ReplicaFetchSession
from quorate.broker.replication.streams.fetch_messages import ReplicaFetchRequest
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.replica_cluster import ReplicaCluster, batch, batches
from tests.support.waiting import async_wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(params=["os", "sync"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ReplicaCluster]:
    async with ReplicaCluster(tmp_path, flush=request.param) as cluster:
        await cluster.start(1, 2, 3)
        yield cluster


async def test_c12_acks_all_is_answered_when_every_isr_member_has_the_records(
    cluster: ReplicaCluster,
) -> None:
    await cluster.create_topic("orders", (1, 2, 3))
    outcomes = await cluster.nodes[1].produce("orders", *batches("record", 50))
    assert [outcome.error_code for outcome in outcomes] == [errors_pb2.NONE] * 50
    assert [outcome.base_offset for outcome in outcomes] == list(range(50))
    for follower in (2, 3):
        assert cluster.nodes[follower].hosted("orders").log.flushed_offset == 50
    await cluster.settled("orders", 1, 2, 3)
    fetched = await cluster.nodes[1].fetch("orders", 0)
    assert fetched.high_watermark == 50
    assert b"".join(fetched.chunks) == cluster.nodes[2].log_bytes("orders")


async def test_c12_a_follower_acknowledges_and_asks_for_more_in_one_request(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "quorate.broker.replication.fetching.fetch_session_handler.ASK_WITH_ACK_MAX_S", 60.0
    )
    await cluster.create_topic("orders", (1, 2, 3))
    await cluster.nodes[1].produce("orders", batch("first"))
    asked: list[ReplicaFetchRequest] = []
    take_in = ReplicaFetchSession.on_request

    def counted(session: ReplicaFetchSession, request: ReplicaFetchRequest) -> None:
        asked.append(request)
        take_in(session, request)

    monkeypatch.setattr(ReplicaFetchSession, "on_request", counted)
    for number in range(20):
        await cluster.nodes[1].produce("orders", batch(f"record {number}"))
    acknowledged = [request for request in asked if request.positions]
    assert len(acknowledged) >= 20
    assert not [request for request in acknowledged if request.ack_only]


async def test_c12_the_followers_watermark_reaches_the_leaders(cluster: ReplicaCluster) -> None:
    await cluster.create_topic("orders", (1, 2, 3))
    await cluster.nodes[1].produce("orders", *batches("record", 3))
    for follower in (2, 3):
        await cluster.watermark_is("orders", follower, 3)


async def test_d3_a_follower_that_was_down_catches_up_after_its_restart(
    cluster: ReplicaCluster,
) -> None:
    await cluster.create_topic("orders", (1, 2, 3))
    await cluster.nodes[1].produce("orders", *batches("before", 20))
    await cluster.stop(3)
    await cluster.elect("orders", 1, isr=(1, 2))
    await cluster.nodes[1].produce("orders", *batches("meanwhile", 20))
    await cluster.start(3)
    assert cluster.nodes[3].hosted("orders").log.log_end_offset == 20
    await cluster.tell("orders", to=[3])
    await cluster.isr_is("orders", 1, 2, 3)
    await cluster.settled("orders", 1, 2, 3)
    await cluster.nodes[1].produce("orders", *batches("after", 5))
    await cluster.settled("orders", 1, 2, 3)


async def test_kip101_a_divergent_follower_is_cut_by_epoch_and_loses_nothing_committed(
    cluster: ReplicaCluster,
) -> None:
    """Broker 1 led alone for a moment: what it has beyond its successor was not committed."""
    await cluster.create_topic("orders", (1, 2, 3))
    await cluster.nodes[1].produce("orders", *batches("committed", 10))
    committed = cluster.nodes[1].log_bytes("orders")
    await cluster.nodes[1].cut_off()
    outcomes = await cluster.nodes[1].produce("orders", *batches("never committed", 7), acks=1)
    assert [outcome.base_offset for outcome in outcomes] == list(range(10, 17))
    await cluster.elect("orders", 2, isr=(2, 3), tell=[2, 3])
    await cluster.nodes[2].produce("orders", *batches("by the successor", 4))
    await cluster.stop(1)
    await cluster.start(1)
    assert cluster.nodes[1].hosted("orders").log.log_end_offset == 17
    await cluster.tell("orders", to=[1])
    await cluster.settled("orders", 1, 2, 3)
    assert cluster.nodes[1].log_bytes("orders", up_to=10) == committed
    assert cluster.nodes[1].hosted("orders").log.log_end_offset == 14
    await cluster.isr_is("orders", 1, 2, 3)


async def test_kip101_having_led_without_writing_spoils_no_history(
    cluster: ReplicaCluster,
) -> None:
    """Broker 2 begins epoch 1 at offset 1 and writes nothing; 3, next, has more of epoch 0.

    Following it, broker 2 gets a record of epoch 0 where its own epoch 1 began. Were epoch 0 to
    begin there in its history, it would leave to others what it should have them cut.
    """
    await cluster.create_topic("orders", (1, 2, 3))
    await cluster.nodes[1].produce("orders", batch("everywhere"))
    await cluster.elect("orders", 2, isr=(1, 2, 3), tell=[2])
    await cluster.nodes[1].produce("orders", batch("on 1 and 3"), acks=1)
    third = cluster.nodes[3].hosted("orders").log
    await async_wait_until(lambda: third.log_end_offset == 2, "two records at broker 3")
    await cluster.elect("orders", 3, isr=(1, 2, 3))
    await cluster.nodes[3].produce("orders", batch("by the successor"))
    await cluster.settled("orders", 1, 2, 3)
    histories = [cluster.nodes[b].hosted("orders").log.leader_epochs.entries for b in (1, 2, 3)]
    assert histories == [[(0, 0), (2, 2)]] * 3


async def test_c12_a_failed_partition_does_not_stop_its_fetcher(
    cluster: ReplicaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """What arrives of one of two partitions is corrupt, and then makes the follower's code fail."""
    caplog.set_level(logging.INFO, "quorate.broker.replication")
    for topic in ("good", "bad"):
        await cluster.create_topic(topic, (1, 2))
        await cluster.nodes[1].produce(topic, batch("before"))
    bad, follower = cluster.nodes[1].hosted("bad").log, cluster.nodes[2].hosted("bad").log
    whole, append = bad.read, follower.append_as_follower

    def damaged(*where: int, wait: bool) -> LogRead:
        read = whole(*where, wait=wait)
        chunks = [bytes(chunk)[:-1] + bytes([bytes(chunk)[-1] ^ 1]) for chunk in read.chunks]
        return LogRead(chunks, read.next_offset, read.size)

    def failing(records: Records) -> LogAppendInfo:
        raise ZeroDivisionError(f"a mistake of ours, met with {len(records)} bytes")

    bad.read = damaged  # type: ignore[assignment, method-assign]
    await cluster.nodes[1].produce("bad", batch("damaged on its way"), acks=1)
    await cluster.nodes[1].produce("good", *batches("meanwhile", 5))
    await async_wait_until(lambda: "header says" in caplog.text, "a complaint about the batch")
    bad.read, follower.append_as_follower = whole, failing  # type: ignore[method-assign]
    await cluster.nodes[1].produce("good", *batches("meanwhile", 5))
    await async_wait_until(
        lambda: "ZeroDivisionError" in caplog.text, "a complaint about the append"
    )
    follower.append_as_follower = append  # type: ignore[method-assign]
    await cluster.settled("bad", 1, 2)
    assert "fetching from broker 1" not in caplog.text, "the stream went on all the time"


async def test_c15_a_deposed_leader_cannot_commit_and_steps_down(
    cluster: ReplicaCluster,
) -> None:
    """Brokers 2 and 3 were told of the new leader, broker 1 was not."""
    await cluster.create_topic("orders", (1, 2, 3))
    await cluster.nodes[1].produce("orders", batch("committed"))
    await cluster.elect("orders", 2, isr=(1, 2, 3), tell=[2, 3])
    (outcome,) = await cluster.nodes[1].produce("orders", batch("lost"), timeout_ms=300)
    assert outcome.error_code != errors_pb2.NONE
    assert cluster.nodes[1].hosted("orders").replica.high_watermark == 1
    await cluster.tell("orders", to=[1])
    assert cluster.nodes[1].hosted("orders").replica.role is ReplicaRole.FOLLOWER
    (outcome,) = await cluster.nodes[1].produce("orders", batch("refused"))
    assert outcome.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
    await cluster.nodes[2].produce("orders", batch("by the successor"))
    await cluster.settled("orders", 1, 2, 3)


async def test_scenario_16_demotion_answers_waiting_produces(cluster: ReplicaCluster) -> None:
    await cluster.create_topic("orders", (1, 2, 3))
    await cluster.nodes[1].produce("orders", batch("committed"))
    for follower in (2, 3):
        await cluster.nodes[follower].manager.stop_replicas(
            cluster.stop_replica("orders", leader_epoch=0, delete=False)
        )
    waiting = asyncio.ensure_future(cluster.nodes[1].produce("orders", batch("waits")))
    leader = cluster.nodes[1].hosted("orders")
    await async_wait_until(lambda: leader.log.flushed_offset == 2, "the flush of both")
    above = await cluster.nodes[1].fetch("orders", 1)
    assert above.error_code == errors_pb2.NONE
    assert above.size == 0, "a consumer gets nothing above the high watermark"
    await cluster.elect("orders", 2, isr=(1, 2, 3), tell=[1])
    (outcome,) = await waiting
    assert outcome.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


async def test_c13_a_dead_follower_leaves_the_isr_and_the_produce_is_answered(
    tmp_path: Path,
) -> None:
    async with ReplicaCluster(tmp_path, lag_time_max_ms=300) as cluster:
        await cluster.start(1, 2)
        await cluster.create_topic("orders", (1, 2))
        await cluster.nodes[1].produce("orders", batch("both"))
        await cluster.stop(2)
        (outcome,) = await cluster.nodes[1].produce("orders", batch("alone"))
        assert outcome.error_code == errors_pb2.NONE
        assert cluster.isr("orders") == {1}
        await cluster.start(2)
        await cluster.tell("orders", to=[2])
        await cluster.isr_is("orders", 1, 2)


async def test_c1_a_lost_answer_to_an_isr_change_is_settled(tmp_path: Path) -> None:
    async with ReplicaCluster(tmp_path) as cluster:
        await cluster.start(1, 2)
        cluster.quorum.lose_answers(cluster.nodes[1].client, 1)
        await cluster.create_topic("orders", (1, 2), isr=(1,))
        await cluster.isr_is("orders", 1, 2)
        leader = cluster.nodes[1].hosted("orders").replica
        await async_wait_until(
            lambda: not leader.isr.unsettled and set(leader.isr.committed) == {1, 2},
            "the leader to know its ISR",
        )


async def test_rule_6_losing_sight_of_the_quorum_freezes_the_isr_but_not_the_leader(
    tmp_path: Path,
) -> None:
    async with ReplicaCluster(tmp_path) as cluster:
        await cluster.start(1, 2)
        await cluster.create_topic("orders", (1, 2))
        await cluster.nodes[1].produce("orders", batch("before"))
        cluster.quorum.available = False
        (outcome,) = await cluster.nodes[1].produce("orders", batch("meanwhile"))
        assert outcome.error_code == errors_pb2.NONE
        cluster.quorum.available = True


async def test_d3_many_partitions_share_one_stream(tmp_path: Path) -> None:
    async with ReplicaCluster(tmp_path) as cluster:
        await cluster.start(1, 2)
        await cluster.create_topic("orders", *[(1, 2), (2, 1)] * 50)
        manager = cluster.nodes[1].manager
        leaders = [h for h in manager.table if h.leads]
        assert len(leaders) == 50
        outcomes = await manager.produce(
            [ProduceEntry(hosted.tp, batch(str(hosted.tp))) for hosted in leaders], -1, 10_000
        )
        assert {outcome.error_code for outcome in outcomes} == {errors_pb2.NONE}


async def test_b3_a_follower_that_starts_before_it_is_registered_rejoins_the_isr(
    tmp_path: Path,
) -> None:
    """It may follow from its image already; what it tells its leader carries its registration."""
    async with ReplicaCluster(tmp_path) as cluster:
        await cluster.start(1, 2)
        follower = cluster.nodes[2]
        epoch = follower.identity.epoch
        assert epoch is not None
        follower.identity.unregister()
        await cluster.create_topic("orders", (1, 2), isr=(1,))
        (outcome,) = await cluster.nodes[1].produce("orders", batch("alone"))
        assert outcome.error_code == errors_pb2.NONE
        assert follower.hosted("orders").log.log_end_offset == 0
        follower.identity.register(epoch)
        await cluster.isr_is("orders", 1, 2)


async def test_b3_a_follower_that_registers_again_tells_its_positions_again(
    tmp_path: Path,
) -> None:
    """Its session was lost: the old registration is gone, and with it what was told under it."""
    async with ReplicaCluster(tmp_path) as cluster:
        await cluster.start(1, 2)
        await cluster.create_topic("orders", (1, 2))
        await cluster.nodes[1].produce("orders", batch("both"))
        cluster.quorum.expire(cluster.nodes[2].client.session_id)
        await cluster.elect("orders", 1, isr=(1,))
        await cluster.nodes[2].register_again()
        await cluster.isr_is("orders", 1, 2)


async def test_d3_deleted_records_are_gone_from_every_replica(cluster: ReplicaCluster) -> None:
    await cluster.create_topic("orders", (1, 2, 3))
    await cluster.nodes[1].produce("orders", *batches("record", 20))
    want = DeleteRecordsPartition(TopicPartition("orders", 0), 15)
    (outcome,) = await cluster.nodes[1].manager.delete_records([want], 10_000)
    assert (outcome.error_code, outcome.low_watermark) == (errors_pb2.NONE, 15)
    for node in cluster.nodes.values():
        log = node.hosted("orders").log
        assert (log.log_start_offset, log.log_end_offset) == (15, 20)
    gone = await cluster.nodes[1].fetch("orders", 14)
    assert gone.error_code == errors_pb2.OFFSET_OUT_OF_RANGE
    await cluster.stop(3)
    await cluster.elect("orders", 2, isr=(2, 1))
    (produced,) = await cluster.nodes[2].produce("orders", batch("after"))
    assert (produced.base_offset, produced.log_start_offset) == (20, 15)
    await cluster.start(3)
    assert cluster.nodes[3].hosted("orders").log.log_start_offset == 15
    await cluster.tell("orders", to=[3])
    await cluster.settled("orders", 1, 2, 3)


async def test_d3_followers_begin_where_retention_took_their_leader(tmp_path: Path) -> None:
    record = batch("x" * 1000)
    async with ReplicaCluster(tmp_path, kept=Retention(bytes=3 * len(record))) as cluster:
        await cluster.start(1, 2, 3)
        await cluster.create_topic("orders", (1, 2, 3))
        await cluster.nodes[1].produce("orders", *([record] * 20))

        def starts() -> set[int]:
            return {node.hosted("orders").log.log_start_offset for node in cluster.nodes.values()}

        await async_wait_until(lambda: starts() == {17}, "the logs to begin at 17")
        await cluster.stop(1)
        await cluster.elect("orders", 2, isr=(2, 3))
        (produced,) = await cluster.nodes[2].produce("orders", record)
        assert (produced.base_offset, produced.log_start_offset) == (20, 17)
        await async_wait_until(
            lambda: cluster.nodes[3].hosted("orders").log.log_start_offset == 18,
            "the log of broker 3 to begin at 18",
        )
        await cluster.start(1)
        await cluster.tell("orders", to=[1])
        await cluster.settled("orders", 1, 2, 3)
        await async_wait_until(lambda: starts() == {18}, "the logs to begin at 18")


async def test_d3_a_replica_that_lacks_what_was_deleted_begins_where_its_leader_does(
    cluster: ReplicaCluster,
) -> None:
    await cluster.create_topic("orders", (1, 2, 3))
    await cluster.nodes[1].produce("orders", *batches("before", 5))
    await cluster.stop(3)
    await cluster.elect("orders", 1, isr=(1, 2))
    await cluster.nodes[1].produce("orders", *batches("meanwhile", 10))
    want = DeleteRecordsPartition(TopicPartition("orders", 0), -1)
    (outcome,) = await cluster.nodes[1].manager.delete_records([want], 10_000)
    assert outcome.low_watermark == 15
    await cluster.nodes[1].produce("orders", batch("after"))
    await cluster.start(3)
    await cluster.tell("orders", to=[3])
    await cluster.isr_is("orders", 1, 2, 3)
    log = cluster.nodes[3].hosted("orders").log
    assert (log.log_start_offset, log.log_end_offset) == (15, 16)


async def test_who_has_no_records_begins_where_its_unclean_leader_does(tmp_path: Path) -> None:
    """It ends beyond that leader's log, though there is nothing in its own: all was deleted."""
    async with ReplicaCluster(tmp_path) as cluster:
        await cluster.start(1)
        await cluster.create_topic("orders", (1, 2), isr=(1,))
        await cluster.nodes[1].produce("orders", batch("deleted"), acks=1)
        log = cluster.nodes[1].hosted("orders").log
        await log.start_at(1)
        await cluster.start(2)
        await cluster.elect("orders", 2, isr=(2,))
        await async_wait_until(
            lambda: (log.log_start_offset, log.log_end_offset) == (0, 0), "an empty log"
        )
        await cluster.nodes[2].produce("orders", batch("new"), acks=1)
        await cluster.settled("orders", 1, 2)
