"""Moves of replicas between the log folders of a broker (KIP-113), with clients meanwhile."""

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import PartitionLog
from quorate.broker.log.future_logs import FutureLogs
from quorate.broker.log.log_manager import LogManager
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.replication_throttle import UNLIMITED
from quorate.broker.replication.moving import replica_mover
from quorate.broker.replication.moving.replica_mover import ReplicaMover
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.replica_cluster import ReplicaCluster, ReplicaNode, batch, batches
from tests.support.waiting import async_wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

TP = TopicPartition("t", 0)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ReplicaCluster]:
    async with ReplicaCluster(tmp_path, disks=2) as cluster:
        await cluster.start(1, 2)
        await cluster.create_topic("t", (1, 2))
        yield cluster


def other_disk(node: ReplicaNode) -> Path:
    (other,) = [disk for disk in node.disks if disk != node.hosted("t").log.directory]
    return other


async def moved(node: ReplicaNode, disk: Path) -> None:
    def is_there() -> bool:
        here = node.manager.table.named(TP)
        return here is not None and here.log.directory == disk and not here.replica.is_idle

    await async_wait_until(is_there, f"broker {node.broker_id} to have it in {disk}")


def contents(node: ReplicaNode) -> list[int]:
    """The number of logs and of copies in each folder."""
    return [len(one.logs) + len(one.futures) for one in node.manager.table.store.stores]


@pytest.mark.parametrize("broker_id", [1, 2], ids=["leader", "follower"])
async def test_a_replica_moves_while_producers_go_on(
    cluster: ReplicaCluster, broker_id: int
) -> None:
    leader, node = cluster.nodes[1], cluster.nodes[broker_id]
    await leader.produce("t", *batches("before", 50))
    disk = other_disk(node)
    moving = asyncio.create_task(node.manager.move_replica(TP, disk))
    written = 0
    while not moving.done() or node.hosted("t").log.directory != disk:
        (outcome,) = await leader.produce("t", batch(f"meanwhile {written}"))
        written += outcome.error_code == errors_pb2.NONE
    assert moving.result() == errors_pb2.NONE
    await moved(node, disk)
    await async_wait_until(lambda: leader.hosted("t").leads, "the leader to lead")
    (outcome,) = await leader.produce("t", batch("after"))
    assert outcome.error_code == errors_pb2.NONE
    await cluster.settled("t", 1, 2)
    assert node.log_bytes("t") == cluster.nodes[3 - broker_id].log_bytes("t")
    assert leader.hosted("t").log.log_end_offset >= 50 + written + 1
    assert sum(contents(node)) == 1, "the old log is gone"
    assert cluster.partition("t").leader_epoch == 0


async def test_a_replica_stops_only_for_what_came_last(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of several pieces is copied before."""
    node = cluster.nodes[1]
    await node.produce("t", *(batch("v" * 300_000) for _ in range(12)))
    left: list[int] = []
    real = ReplicaMover._finish

    async def finish(
        mover: ReplicaMover, hosted: HostedPartition, future: PartitionLog, store: LogManager
    ) -> None:
        left.append(hosted.log.log_end_offset - future.log_end_offset)
        await real(mover, hosted, future, store)

    monkeypatch.setattr(ReplicaMover, "_finish", finish)
    disk = other_disk(node)
    assert await node.manager.move_replica(TP, disk) == errors_pb2.NONE
    await moved(node, disk)
    assert left == [0]


async def test_at_most_two_pieces_of_a_copy_wait_for_the_disk(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer whose batch comes behind them waits for them, too."""
    node = cluster.nodes[1]
    await node.produce("t", *(batch("v" * 300_000) for _ in range(12)))
    waiting: list[int] = []
    real = replica_mover._copy_piece

    async def copy_piece(source: PartitionLog, future: PartitionLog, up_to: int) -> int:
        size = await real(source, future, up_to)
        waiting.append(future.log_end_offset - future.flushed_offset)
        return size

    monkeypatch.setattr(replica_mover, "_copy_piece", copy_piece)
    disk = other_disk(node)
    assert await node.manager.move_replica(TP, disk) == errors_pb2.NONE
    await moved(node, disk)
    assert len(waiting) >= 12
    assert max(waiting) <= 2, "each piece is one batch here"


async def test_a_copy_is_described_until_it_counts(cluster: ReplicaCluster) -> None:
    node = cluster.nodes[1]
    await node.produce("t", *batches("v", 10))
    rate = 0
    node.manager.table.throttles = node.manager.table.throttles._replace(  # type: ignore[misc]
        move_rate=lambda: rate
    )
    disk = other_disk(node)
    # A piece of the size of the copy makes the throttle wait.
    original, replica_mover.PIECE_BYTES = replica_mover.PIECE_BYTES, 1  # type: ignore[misc]
    try:
        assert await node.manager.move_replica(TP, disk) == errors_pb2.NONE
        await async_wait_until(
            lambda: any(one.is_future and one.size_bytes for one in node.manager.log_sizes()),
            "the copy to have a batch",
        )
        (now, future) = node.manager.log_sizes([TP])
        assert (now.directory, future.directory) == (node.hosted("t").log.directory, disk)
        assert 0 < future.offset_lag < 10
        assert await node.manager.move_replica(TP, now.directory) == errors_pb2.NONE
        assert len(list(node.manager.log_sizes([TP]))) == 1, "the move has ended"
        assert await node.manager.move_replica(TP, disk) == errors_pb2.NONE
        rate = UNLIMITED
        await moved(node, disk)
    finally:
        replica_mover.PIECE_BYTES = original  # type: ignore[misc]


@pytest.mark.parametrize("step", ["created", "promote", "promoted", "delete"])
async def test_a_crash_at_any_step_leaves_one_replica_with_all_records(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What was acknowledged is there after a restart, once, and the copy or the log is gone."""
    node = cluster.nodes[1]
    await node.produce("t", *batches("v", 20))
    disk = other_disk(node)
    before = node.log_bytes("t")
    reached = asyncio.Event()

    async def hang(*_: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    real = FutureLogs.promote

    async def promote_and_hang(futures: FutureLogs, future: PartitionLog) -> None:
        await real(futures, future)
        await hang()

    with monkeypatch.context() as patch:
        if step == "created":
            patch.setattr(replica_mover, "_copy_piece", hang)
        elif step == "promoted":
            patch.setattr(FutureLogs, "promote", promote_and_hang)
        else:
            patch.setattr(FutureLogs if step == "promote" else LogManager, step, hang)
        assert await node.manager.move_replica(TP, disk) == errors_pb2.NONE
        await reached.wait()
        node.manager._mover._finishing = None
        await cluster.stop(1)
    await cluster.start(1)
    node = cluster.nodes[1]
    await cluster.tell("t")
    await moved(node, disk)
    await async_wait_until(lambda: sum(contents(node)) == 1, "one log to be left")
    assert node.log_bytes("t") == before
    await async_wait_until(lambda: node.hosted("t").leads, "it to lead")
    (outcome,) = await node.produce("t", batch("after"))
    assert outcome.error_code == errors_pb2.NONE


async def test_a_copy_of_which_nobody_knows_whether_it_counts_never_replaces_later_records(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails after it has written that the copy counts. The old log goes on, and a restart
    must not take the copy for the newer one."""
    node = cluster.nodes[1]
    await node.produce("t", *batches("v", 5))
    here = node.hosted("t").log.directory
    tried = asyncio.Event()

    async def promote(futures: FutureLogs, future: PartitionLog) -> None:
        await futures._parts.writer.settle()
        futures._parts.table.replace_partition(future.row)
        tried.set()
        raise KafkaError(errors_pb2.KAFKA_STORAGE_ERROR, "the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(FutureLogs, "promote", promote)
        patch.setattr(FutureLogs, "delete", _keep)
        assert await node.manager.move_replica(TP, other_disk(node)) == errors_pb2.NONE
        await tried.wait()
        await moved(node, here)
        await async_wait_until(lambda: node.hosted("t").leads, "the old log to lead")
        (outcome,) = await node.produce("t", batch("later"))
        assert outcome.error_code == errors_pb2.NONE
        await cluster.stop(1)
    await cluster.start(1)
    await cluster.tell("t")
    node = cluster.nodes[1]
    assert node.hosted("t").log.log_end_offset == 6
    assert node.hosted("t").log.directory == here


async def _keep(store: LogManager, future: PartitionLog) -> None:
    """Delete nothing, as a disk that has failed."""


async def test_what_cannot_be_moved_is_refused(cluster: ReplicaCluster, tmp_path: Path) -> None:
    node = cluster.nodes[1]
    move = node.manager.move_replica
    assert await move(TP, tmp_path) == errors_pb2.LOG_DIR_NOT_FOUND
    assert await move(TP, node.hosted("t").log.directory) == errors_pb2.NONE
    later = TopicPartition("later", 0)
    chosen = node.hosted("t").log.directory
    assert await move(later, chosen) == errors_pb2.REPLICA_NOT_AVAILABLE
    await cluster.create_topic("later", (1,))
    assert node.hosted("later").log.directory == chosen, "though another has fewer"


async def test_a_copy_of_what_was_truncated_meanwhile_never_counts(tmp_path: Path) -> None:
    """A follower moves, and its leader dies, after all was copied and before the copy counts."""
    async with ReplicaCluster(tmp_path, disks=2) as cluster:
        await cluster.start(1, 2, 3)
        await cluster.create_topic("t", (1, 2, 3))
        await cluster.nodes[1].produce("t", *batches("common", 10))
        await cluster.settled("t", 1, 2, 3)
        await cluster.stop(3)
        await cluster.nodes[1].produce("t", *batches("not committed", 10), acks=1)
        await cluster.settled("t", 1, 2)
        node = cluster.nodes[2]
        mover = node.manager._mover
        is_copied, may_go_on, real = asyncio.Event(), asyncio.Event(), mover._fresh_image

        async def image_in_time() -> object:
            is_copied.set()
            await may_go_on.wait()
            return await real()

        mover._fresh_image = image_in_time  # type: ignore[assignment]
        disk = other_disk(node)
        assert await node.manager.move_replica(TP, disk) == errors_pb2.NONE
        await is_copied.wait()
        await cluster.stop(1)
        await cluster.start(3)
        await cluster.elect("t", 3, isr=(3, 2))
        await cluster.nodes[3].produce("t", *batches("committed", 20))
        await cluster.settled("t", 2, 3)
        may_go_on.set()
        await moved(node, disk)
        await cluster.nodes[3].produce("t", batch("last"))
        await cluster.settled("t", 2, 3)
        assert node.log_bytes("t") == cluster.nodes[3].log_bytes("t")


async def test_a_replica_moves_off_a_full_disk(cluster: ReplicaCluster) -> None:
    node = cluster.nodes[1]
    await node.produce("t", *batches("v", 20))
    store = node.manager.table.store.store_of(node.hosted("t").log)
    store.writer.space.note_full(OSError(errno.ENOSPC, "full"))
    assert store.is_full
    disk = other_disk(node)
    assert await node.manager.move_replica(TP, disk) == errors_pb2.NONE
    await moved(node, disk)
    assert node.hosted("t").log.log_end_offset == 20


async def test_a_copy_beside_the_log_itself_is_given_up_at_the_start(
    cluster: ReplicaCluster,
) -> None:
    """It is left of a move from a folder that was missing while the partition was made anew."""
    node = cluster.nodes[1]
    await node.produce("t", *batches("v", 20))
    log = node.hosted("t").log
    store = node.manager.table.store.store_of(log)
    store.futures.create(log)
    await store.writer.settle()
    for _ in range(2):
        await cluster.stop(1)
        await cluster.start(1)
        await cluster.tell("t")
        node = cluster.nodes[1]
        assert contents(node).count(1) == 1, "the log, and no copy"
        assert node.hosted("t").log.log_end_offset == 20
