"""Partitions by the hundred thousand in a real quorum, and small changes to them under load."""

import asyncio
import itertools
import random
import time
from typing import Final

from quorate.common.types import BrokerId, ControllerEpoch, Endpoint, LeaderEpoch, TopicId
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.records import (
    BrokerRegistration,
    ControllerClaim,
    ControllerEpochIs,
    NewPartition,
    Operation,
    PartitionChange,
    Record,
    TopicCreated,
)
from quorate.quorum.client.quorum_client import QuorumClient

CONTROLLER: Final = BrokerId(1)
BROKERS: Final = tuple(map(BrokerId, range(1, 13)))
REPLICATION_FACTOR: Final = 3

_AT_ONCE: Final = 4
_PER_TRANSACTION: Final = 10_000


class ManyPartitions:
    """Acts as the controller of a cluster that has brokers and logs in its metadata alone."""

    def __init__(self, client: QuorumClient, *, topics: int, partitions: int) -> None:
        """``partitions`` in each of ``topics``."""
        self._client = client
        self._random = random.Random(1)
        self._epoch = ControllerEpoch(1)
        self._topics = [
            (f"topic-{number:05}", TopicId(number.to_bytes(16, "big")))
            for number in range(1, topics + 1)
        ]
        self._replicas = [
            [tuple(self._random.sample(BROKERS, REPLICATION_FACTOR)) for _ in range(partitions)]
            for _ in range(topics)
        ]
        everything = itertools.product(range(topics), range(partitions))
        self._turns = itertools.cycle([*everything][:: max(1, topics * partitions // 20_000)])
        self._versions: dict[tuple[int, int], int] = {}

    async def create(self) -> None:
        """Take the controller's office, and create everything."""
        await self._write(
            BrokerRegistration(
                broker_id=CONTROLLER,
                session_id=self._client.session_id,
                incarnation_id=bytes(16),
                kafka=Endpoint("127.0.0.1", 9092),
                grpc=Endpoint("127.0.0.1", 9192),
                metadata_version_max=NEWEST_METADATA_VERSION,
            ),
            ControllerClaim(
                broker_id=CONTROLLER,
                session_id=self._client.session_id,
                timestamp_ms=time.time_ns() // 1_000_000,
                controller_epoch=self._epoch,
            ),
        )
        created = [self._created(number) for number in range(len(self._topics))]
        size = max(1, _PER_TRANSACTION // len(self._replicas[0]))
        batches = [created[at : at + size] for at in range(0, len(created), size)]
        limit = asyncio.Semaphore(_AT_ONCE)

        async def write(batch: list[TopicCreated]) -> None:
            async with limit:
                await self._write_as_controller(*batch)

        await asyncio.gather(*map(write, batches))

    async def change_one(self) -> None:
        """Begin another leader epoch of the next partition; few changes are under way for the same
        one."""
        topic, partition = next(self._turns)
        version = self._versions.get((topic, partition), 0)
        self._versions[topic, partition] = version + 1
        name, topic_id = self._topics[topic]
        replicas = self._replicas[topic][partition]
        await self._write_as_controller(
            PartitionChange(
                topic=name,
                topic_id=topic_id,
                partition=partition,
                expected_version=version,
                leader=replicas[(version + 1) % len(replicas)],
                leader_epoch=LeaderEpoch(version + 1),
                isr=replicas,
                controller_id=CONTROLLER,
                controller_epoch=self._epoch,
            )
        )

    def _created(self, number: int) -> TopicCreated:
        name, topic_id = self._topics[number]
        return TopicCreated(
            name=name,
            topic_id=topic_id,
            partitions=tuple(
                NewPartition(replicas=replicas, leader=replicas[0], isr=replicas)
                for replicas in self._replicas[number]
            ),
            controller_id=CONTROLLER,
            controller_epoch=self._epoch,
        )

    async def _write_as_controller(self, *records: Record) -> None:
        conditions = (ControllerEpochIs(controller_epoch=self._epoch),)
        result = await self._client.transact([Operation(records=records, conditions=conditions)])
        assert result.ok, result.results[0]

    async def _write(self, *records: Record) -> None:
        result = await self._client.transact([Operation(records=records)])
        assert result.ok, result.results[0]


class Load:
    """A number of changes in flight until it is stopped, with the time that each took."""

    def __init__(self, partitions: ManyPartitions, in_flight: int) -> None:
        self._partitions = partitions
        self.latencies_ms: list[float] = []
        self.longest_gap_ms = 0.0
        self._last_s = time.perf_counter()
        self._tasks = [asyncio.create_task(self._run()) for _ in range(in_flight)]

    def reset(self) -> None:
        """Measure from now on."""
        self.latencies_ms = []
        self.longest_gap_ms = 0.0
        self._last_s = time.perf_counter()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _run(self) -> None:
        while True:
            started = time.perf_counter()
            await self._partitions.change_one()
            now = time.perf_counter()
            self.latencies_ms.append((now - started) * 1000)
            self.longest_gap_ms = max(self.longest_gap_ms, (now - self._last_s) * 1000)
            self._last_s = now
