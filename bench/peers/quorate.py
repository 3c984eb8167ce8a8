"""Quorate's own quorum of three voters, and its client.

A put is a configuration value (``ConfigSet``) of one of as many topics as there are keys: like a
key of etcd's or a znode it is kept, and replaced by the next one. The partitions' states are
leaderAndISR records. Both are written as the controller writes them, under its epoch.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.peers.closed_loop import await_writes
from bench.peers.contender import KEYS, LEAVES, BatchClient, Cluster, key, value
from quorate.broker.controller.managers.decisions import ControllerTenure, split
from quorate.common.types import ID_BYTES, BrokerId, ControllerEpoch, Endpoint, LeaderEpoch, TopicId
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.records import (
    BrokerRegistration,
    ConfigSet,
    ControllerClaim,
    NewPartition,
    Operation,
    PartitionChange,
    TopicCreated,
)
from quorate.quorum.client.quorum_client import QuorumClient
from tests.support.quorum_cluster import QuorumCluster

_BROKERS: Final = (BrokerId(1), BrokerId(2), BrokerId(3))
_CONTROLLER: Final = _BROKERS[0]
_OFFICE: Final = ControllerTenure(_CONTROLLER, ControllerEpoch(1))
_SESSION_TIMEOUT_MS: Final = 30_000
_START_TIMEOUT_MS: Final = 30_000


class QuorateCluster(Cluster):
    """Voters as ``quorate node quorum`` starts them."""

    def __init__(self, folder: Path, *, name: str = "quorate", secure: bool = True) -> None:
        self.name = name
        self._voters = QuorumCluster(folder, secure=secure)
        self._in_office: QuorumClient | None = None

    @property
    def pids(self) -> Mapping[int, int]:
        return {voter: process.pid for voter, process in self._voters.processes.items()}

    async def start(self) -> None:
        await asyncio.to_thread(self._voters.start_all)
        self._in_office = await self._open_client()
        await self._take_office()

    async def stop(self) -> None:
        try:
            if self._in_office is not None:
                await self._in_office.close()
        finally:
            self._voters.stop_all()

    @property
    def _controller(self) -> QuorumClient:
        assert self._in_office is not None, "the cluster is not started"
        return self._in_office

    def start_node(self, node: int) -> None:
        self._voters.start(node)

    def kill(self, node: int) -> None:
        self._voters.kill(node)

    def leader(self) -> int:
        return self._voters.wait_for_leader()

    def is_caught_up(self, node: int) -> bool:
        status = self._voters.status(node)
        if status is None or not status.leader_id:
            return False
        leader = self._voters.status(status.leader_id)
        return leader is not None and status.applied_offset >= leader.commit_offset

    async def connect(self) -> "QuorateClient":
        return QuorateClient(await self._open_client())

    async def _open_client(self) -> QuorumClient:
        client = QuorumClient(
            self._voters.addresses,
            description="bench",
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            security=self._voters.security,
        )
        await client.start(deadline_ms=_START_TIMEOUT_MS)
        return client

    async def _take_office(self) -> None:
        """Configuration and leaders are the controller's to write."""
        session_id = self._controller.session_id
        here = Endpoint("127.0.0.1", 9092)
        registration = BrokerRegistration(
            broker_id=_CONTROLLER,
            session_id=session_id,
            incarnation_id=bytes(ID_BYTES),
            kafka=here,
            grpc=here,
            metadata_version_max=NEWEST_METADATA_VERSION,
        )
        claim = ControllerClaim(
            broker_id=_CONTROLLER,
            session_id=session_id,
            timestamp_ms=time.time_ns() // 1_000_000,
            controller_epoch=_OFFICE.controller_epoch,
        )
        for record in (registration, claim):
            await commit(self._controller, [Operation(records=(record,))])

    async def create_keys(self) -> None:
        await commit(self._controller, [put(number) for number in range(KEYS)])

    async def create_leaves(self, count: int) -> None:
        """Create ``count`` leaves in topics of ``LEAVES`` partitions."""
        for number in range(count // LEAVES):
            await commit(self._controller, [_OFFICE.operation(topic(number))])

    async def write_through(self) -> None:
        await commit(self._controller, [put(0)])


class QuorateClient(BatchClient):
    """One session."""

    def __init__(self, client: QuorumClient) -> None:
        self._client = client

    async def close(self) -> None:
        await self._client.close()

    async def write_for(self, seconds: float, in_flight: int) -> list[float]:
        return await await_writes(self._write, seconds, in_flight)

    async def _write(self, number: int) -> None:
        result = await self._client.transact((put(number),))
        assert result.ok, result

    async def update_leaves(self, version: int) -> float:
        operations = [leaf_change(number, version) for number in range(LEAVES)]
        started = time.perf_counter()
        await commit(self._client, operations)
        return (time.perf_counter() - started) * 1000


async def commit(client: QuorumClient, operations: Sequence[Operation]) -> None:
    """Commit as the controller does: in as few transactions as they fit in, side by side."""
    results = await asyncio.gather(
        *(client.transact(batch, atomic=False) for batch in split(operations))
    )
    for result in results:
        assert result.ok, next(each for each in result.results if not each.ok)


def put(number: int) -> Operation:
    """The key's 20 characters are the topic's name."""
    return _OFFICE.operation(
        ConfigSet(entity_type="topic", entity_name=key(number), key="v", value=value(number))
    )


def topic(number: int) -> TopicCreated:
    """Return a topic with ``LEAVES`` partitions, three replicas each, all in the ISR."""
    return TopicCreated(
        name=f"leaf-{number}",
        topic_id=_topic_id(number),
        partitions=tuple(
            NewPartition(replicas=_BROKERS, leader=_BROKERS[0], isr=_BROKERS) for _ in range(LEAVES)
        ),
        controller_id=_CONTROLLER,
        controller_epoch=_OFFICE.controller_epoch,
    )


def leaf_change(number: int, version: int) -> Operation:
    """Return the change of a partition of the first topic to the next leader, one leader epoch
    up."""
    change = PartitionChange(
        topic="leaf-0",
        topic_id=_topic_id(0),
        partition=number,
        expected_version=version - 1,
        leader=_BROKERS[version % len(_BROKERS)],
        leader_epoch=LeaderEpoch(version),
        isr=_BROKERS,
        controller_id=_CONTROLLER,
        controller_epoch=_OFFICE.controller_epoch,
    )
    return _OFFICE.operation(change)


def _topic_id(number: int) -> TopicId:
    return TopicId(number.to_bytes(ID_BYTES, "big"))
