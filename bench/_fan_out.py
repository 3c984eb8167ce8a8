"""A real controller, stub brokers that lead and follow, and the time until all of them are told.

The controller is a broker as deployed. It gives up its office, takes it again, and tells every
broker what a new controller tells: INIT LeaderAndIsr, and the metadata. The stubs answer and keep
nothing. At inter_broker_protocol 3 they do not follow the metadata log either: what a broker does
there for an INIT is measured on its own (``bench/scale.py``).
"""

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvloop

from bench._stub_brokers import StubBrokers, stub_brokers
from quorate.broker.controller.managers.decisions import ControllerTenure, split
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.client.grpc_channels import BrokerStubs
from quorate.common.types import ID_BYTES, BrokerId, ControllerEpoch, Endpoint, TopicId
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.partitions import interned
from quorate.metadata_log.records import BrokerRegistration, NewPartition, Operation, TopicCreated
from quorate.quorum.client.quorum_client import QuorumClient
from quorate.testing import RunningCluster, running_cluster
from quorate_proto.v1 import admin_pb2

PARTITIONS_PER_TOPIC: Final = 100
REPLICATION_FACTOR: Final = 3
FIRST_STUB: Final = 2
SESSION_TIMEOUT_MS: Final = 60_000
TIMEOUT_MS: Final = 900_000
IDLE: Final = 0.1
"""The share of a core below which a process counts as idle."""
TOPICS_TOGETHER: Final = 200

_OFFICE: Final = ControllerTenure(BrokerId(1), ControllerEpoch(1))
_TOLD: Final = re.compile(r"INIT and all metadata told to (\d+) brokers in (\d+) ms")

Figures = dict[str, float]


class FanOut:
    """A cluster of one broker that runs, and of stubs that it tells."""

    def __init__(self, cluster: RunningCluster, stubs: StubBrokers, level: int) -> None:
        self._cluster = cluster
        self._stubs = stubs
        self._level = level

    async def fill(self, topics: int) -> None:
        """Register the stubs, and make partitions that they lead, in the controller's name."""
        addresses = [self._cluster.voter_grpc_address(one) for one in self._cluster.voter_ids]
        self._client = QuorumClient(
            addresses,
            description="stub brokers",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            security=self._cluster.quorum_security(),
        )
        await self._client.start(deadline_ms=TIMEOUT_MS)
        await self._commit([self._registered(*stub) for stub in enumerate(self._stubs.ports)])
        await self._until_admitted()
        stubs = len(self._stubs.ports)
        for first in range(0, topics, TOPICS_TOGETHER):
            numbers = range(first, min(topics, first + TOPICS_TOGETHER))
            await self._commit([_OFFICE.operation(_created(one, stubs)) for one in numbers])

    async def _until_admitted(self) -> None:
        """Wait until the controller has dealt with the arrival of every stub."""
        images = MetadataFollower(self._client)
        await images.start()
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while len(images.image.brokers) <= len(self._stubs.ports) or not all(
                broker.admitted for broker in images.image.brokers.values()
            ):
                await asyncio.sleep(0.05)
        await images.close()

    async def close(self) -> None:
        """End the session of the stubs."""
        await self._client.close()

    def measure(self) -> Figures:
        """Give up the tenure, and wait until the next controller, the same, has told everyone."""
        pid = self._cluster.broker_pid(1)
        assert pid is not None, "the controller does not run"
        wait_until_idle(pid)
        forget_peak(pid)
        self._stubs.received_bytes()
        before_mb = memory_mb(pid, "status", "VmRSS")
        said = len(self._told())
        # Not by the admin client, who would ask the stubs as well.
        stubs = BrokerStubs(self._cluster.broker_grpc_address(1))
        answer = stubs.admin.ResignController(admin_pb2.ResignControllerRequest())
        assert answer.error_code == 0, answer
        stubs.close()
        self._cluster.wait_until(
            lambda: len(self._told()) > said, "everyone to be told", timeout_ms=TIMEOUT_MS
        )
        brokers, took_ms = self._told()[-1]
        assert brokers == len(self._stubs.ports) + 1, f"{brokers} brokers were told"
        return {
            "s": took_ms / 1000,
            "MB sent": self._stubs.received_bytes() / 1e6,
            "RSS MB before": before_mb,
            "peak RSS MB": memory_mb(pid, "status", "VmHWM"),
            "PSS MB after": memory_mb(pid, "smaps_rollup", "Pss"),
        }

    def _told(self) -> list[tuple[int, int]]:
        """Return the brokers, and the milliseconds, of each time."""
        lines = map(_TOLD.search, self._cluster.broker_log(1, lines=10_000))
        return [(int(found[1]), int(found[2])) for found in lines if found is not None]

    async def _commit(self, operations: Sequence[Operation]) -> None:
        for batch in split(operations):
            result = await self._client.transact(batch)
            assert result.ok, next(each for each in result.results if not each.ok)

    def _registered(self, index: int, port: int) -> Operation:
        number = FIRST_STUB + index
        registration = BrokerRegistration(
            broker_id=BrokerId(number),
            session_id=self._client.session_id,
            incarnation_id=number.to_bytes(ID_BYTES, "big"),
            kafka=Endpoint("127.0.0.1", 9092),
            grpc=Endpoint("127.0.0.1", port),
            inter_broker_protocol_max=self._level,
            metadata_version_max=NEWEST_METADATA_VERSION,
        )
        return Operation(records=(registration,))


def replicas_from(start: int, first: int, brokers: int) -> tuple[BrokerId, ...]:
    """Return brokers in turn, so that each leads and follows as many as the others."""
    return interned(
        tuple(BrokerId(first + (start + step) % brokers) for step in range(REPLICATION_FACTOR))
    )


def _created(number: int, stubs: int) -> TopicCreated:
    first = number * PARTITIONS_PER_TOPIC
    lists = [
        replicas_from(one, FIRST_STUB, stubs) for one in range(first, first + PARTITIONS_PER_TOPIC)
    ]
    return TopicCreated(
        name=f"topic-{number:06}",
        topic_id=TopicId(number.to_bytes(ID_BYTES, "big")),
        partitions=tuple(NewPartition(replicas=one, leader=one[0], isr=one) for one in lists),
        controller_id=_OFFICE.controller_id,
        controller_epoch=_OFFICE.controller_epoch,
    )


@contextmanager
def fan_out(brokers: int, partitions: int, level: int) -> Iterator[Callable[[], Figures]]:
    """Run a controller at a level of inter_broker_protocol, and return how to measure it once."""
    with (
        stub_brokers(brokers) as stubs,
        running_cluster(
            forked=False,
            brokers=1,
            voters=1,
            config={
                "security.protocol": "PLAINTEXT",  # The stubs have no certificates.
                "inter.broker.protocol.version": level,
                "broker.session.timeout.ms": SESSION_TIMEOUT_MS,
                "controller.socket.timeout.ms": 120_000,
            },
        ) as cluster,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        one = FanOut(cluster, stubs, level)
        runner.run(one.fill(partitions // PARTITIONS_PER_TOPIC))
        # In a thread, while the loop goes on to keep the stubs' session alive.
        yield lambda: runner.run(asyncio.to_thread(one.measure))
        runner.run(one.close())


def wait_until_idle(pid: int) -> None:
    """Wait until the process has told everyone of what was created, and rests."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    before_s, busy = 0.0, True
    while busy:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used_s = (int(fields[11]) + int(fields[12])) * tick_s
        busy, before_s = used_s - before_s > 2 * IDLE, used_s
        time.sleep(2.0)


def forget_peak(pid: int) -> None:
    """Have ``VmHWM`` begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def memory_mb(pid: int, file: str, field: str) -> float:
    """Return a field of a file in /proc/PID."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/{file}").read_text(), re.M)
    assert found is not None, field
    return int(found[1]) / 1000
