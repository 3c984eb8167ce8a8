"""Retention at leaders and followers: who decides, what of, and when."""

import asyncio
from typing import Any

import pytest

from quorate.broker.log import Retention
from quorate.broker.replication.maintenance.retention_task import RetentionTask
from quorate.broker.replication.manager import ReplicationOptions
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.log_stores import batch
from tests.support.virtual_time import VirtualTimeLoop, pass_time

CHECK_S = ReplicationOptions().retention_check_interval_ms // 1_000
TOO_OLD = Retention(ms=1_000)


async def lead(
    broker: BrokerReplicas, topic: str = "orders", *timestamps: int, isr: tuple[int, ...] = (1,)
) -> None:
    await broker.lead(topic, isr=isr, replicas=isr)
    for timestamp_ms in timestamps:
        await broker.produce(topic, batch(2, timestamp_ms=timestamp_ms), acks=0)
    broker.store.flush()


def start(broker: BrokerReplicas, topic: str = "orders") -> int:
    return broker.hosted(topic).log.log_start_offset


def run_virtually(scenario: Any) -> None:  # noqa: ANN401 - a coroutine function
    async def run() -> None:
        broker = await BrokerReplicas().start()
        broker.limits.kept = TOO_OLD
        try:
            await scenario(broker)
        finally:
            await broker.close()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())


def test_d3_old_records_go_at_the_next_check_and_not_before() -> None:
    async def scenario(broker: BrokerReplicas) -> None:
        await lead(broker, "orders", 100, 200, 5_000)
        broker.wall_clock_ms = 1_201
        await pass_time(CHECK_S - 1)
        assert start(broker) == 0
        await pass_time(2)
        assert start(broker) == 4
        broker.wall_clock_ms = 6_001
        await pass_time(CHECK_S - 2)
        assert start(broker) == 4
        await pass_time(2)
        assert start(broker) == 6
        gone = await broker.fetch("orders", 5)
        assert gone.error_code == errors_pb2.OFFSET_OUT_OF_RANGE

    run_virtually(scenario)


def test_d3_only_what_is_committed_goes() -> None:
    async def scenario(broker: BrokerReplicas) -> None:
        await lead(broker, "orders", 100, isr=(1, 2))
        broker.wall_clock_ms = 10_000
        await pass_time(CHECK_S + 1)
        assert start(broker) == 0, "broker 2 lacks it"
        follower = broker.follower(2)
        follower.send("orders")
        follower.receive()
        follower.send("orders", fetch=2)
        await pass_time(CHECK_S)
        assert start(broker) == 2
        assert follower.has_news()
        (told,), _ = follower.receive()
        assert told.log_start_offset == 2, "at once, not with the next record"

    run_virtually(scenario)


def test_d3_followers_decide_nothing() -> None:
    async def scenario(broker: BrokerReplicas) -> None:
        await lead(broker, "orders", 100)
        assert await broker.command("orders", leader=2, epoch=1, version=1) == 0
        broker.wall_clock_ms = 10_000
        await pass_time(CHECK_S + 1)
        assert start(broker) == 0

    run_virtually(scenario)


def test_d3_each_topic_has_its_own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: BrokerReplicas) -> None:
        for topic in ("kept", "short", "small"):
            await lead(broker, topic, 100, 100)
        size = len(batch(2, timestamp_ms=100))
        limits = {"kept": Retention(), "short": TOO_OLD, "small": Retention(bytes=size)}
        monkeypatch.setattr(broker.limits, "retention", limits.__getitem__)
        broker.wall_clock_ms = 10_000
        await pass_time(CHECK_S + 1)
        assert {topic: start(broker, topic) for topic in limits} == {
            "kept": 0,
            "short": 4,
            "small": 2,
        }

    run_virtually(scenario)


def test_d3_a_log_that_cannot_be_moved_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(broker: BrokerReplicas) -> None:
        for topic in ("first", "second", "third"):
            await lead(broker, topic, 100)
        log = broker.hosted("second").log
        flushed, log.flushed_offset = log.flushed_offset, 0
        broker.wall_clock_ms = 10_000
        await pass_time(CHECK_S + 1)
        assert [start(broker, topic) for topic in ("first", "second", "third")] == [2, 0, 2]
        assert "second-0 keeps what is older than offset 2" in caplog.text
        log.flushed_offset = flushed
        await pass_time(CHECK_S)
        assert start(broker, "second") == 2

    run_virtually(scenario)


def test_d3_a_round_that_fails_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: BrokerReplicas) -> None:
        await lead(broker, "orders", 100)
        broker.wall_clock_ms = 10_000
        with monkeypatch.context() as patch:
            patch.setattr(broker.limits, "retention", None)
            await pass_time(CHECK_S + 1)
        assert "deleting old records failed" in caplog.text
        await pass_time(CHECK_S)
        assert start(broker) == 2

    run_virtually(scenario)


def test_d3_thousands_of_partitions_move_together_and_let_others_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: BrokerReplicas) -> None:
        for number in range(1_200):
            await lead(broker, f"t{number}", 100)
        at_once: list[int] = []
        logs = broker.store.logs.values()
        running = 0
        for log in logs:
            original = log.start_at

            async def start_at(offset: int, original: Any = original) -> None:  # noqa: ANN401
                nonlocal running
                running += 1
                at_once.append(running)
                await asyncio.sleep(0)
                await original(offset)
                running -= 1

            monkeypatch.setattr(log, "start_at", start_at)
        retaining = RetentionTask(broker.manager.table, broker.limits)
        broker.wall_clock_ms = 10_000
        round_ = asyncio.create_task(retaining.run())
        turns = 0
        while not round_.done():
            await asyncio.sleep(0)
            turns += 1
        assert all(log.log_start_offset == 2 for log in logs)
        assert max(at_once) == 500
        assert turns > 12, "one per hundred partitions"

    run_virtually(scenario)
