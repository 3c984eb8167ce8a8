"""Everything that clients are told of 200,000 partitions, sent to 1, 50 and 200 brokers.

The controller is a broker as deployed, which gives up its office and takes it again, and tells
everyone everything. The other brokers are stubs that answer and keep nothing, and the partitions
are offline: there is no leadership to tell. "peak MB": of the controller's memory meanwhile. The
original design needed a request in memory for each broker, 30 GB for 200 of them. "bytes per
partition", and "changed ms" to encode everything when one topic has changed, are of partitions with
leaders, on brokers with numbers above 1,000.
"""

import asyncio
import functools
import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import immutables
import uvloop

from bench._kafka_load import in_own_process
from bench._stub_brokers import stub_brokers
from bench._support import Bench
from quorate.broker.controller.channels.control_requests import ControlRequestBuilder
from quorate.broker.controller.managers.decisions import ControllerTenure, split
from quorate.client.grpc_channels import BrokerStubs
from quorate.common.types import (
    ID_BYTES,
    NO_BROKER,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    MetadataOffset,
    TopicId,
)
from quorate.metadata_log.features import NEWEST_INTER_BROKER_PROTOCOL, NEWEST_METADATA_VERSION
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Partition, Topic, interned
from quorate.metadata_log.records import BrokerRegistration, NewPartition, Operation, TopicCreated
from quorate.quorum.client.quorum_client import QuorumClient
from quorate.testing import RunningCluster, running_cluster
from quorate_proto.v1 import admin_pb2

PARTITIONS_PER_TOPIC: Final = 100
REPLICATION_FACTOR: Final = 3
HOSTS: Final = 200
"""Brokers that the replicas are spread over; none of them lives."""
FIRST_HOST: Final = 1_001
FIRST_STUB: Final = 2
CHANGES: Final = 21
SESSION_TIMEOUT_MS: Final = 60_000
TIMEOUT_MS: Final = 120_000
SETTLE_S: Final = 3.0

_OFFICE: Final = ControllerTenure(BrokerId(1), ControllerEpoch(1))
_TOLD: Final = re.compile(r"INIT and all metadata told to (\d+) brokers in (\d+) ms")


class FanOut:
    """A cluster of one broker that runs, and of stubs that it tells."""

    def __init__(self, cluster: RunningCluster, ports: Sequence[int]) -> None:
        self._cluster = cluster
        self._ports = ports

    async def fill(self, topics: int) -> None:
        """Make the partitions, in the name of the controller; register the stubs, and stay."""
        addresses = [self._cluster.voter_grpc_address(one) for one in self._cluster.voter_ids]
        self._client = QuorumClient(
            addresses,
            description="stub brokers",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            security=self._cluster.quorum_security(),
        )
        await self._client.start(deadline_ms=TIMEOUT_MS)
        await self._commit([_OFFICE.operation(_created(number)) for number in range(topics)])
        await self._commit([self._registered(*stub) for stub in enumerate(self._ports)])

    async def close(self) -> None:
        await self._client.close()

    def measure(self) -> dict[str, float]:
        """Give up the tenure, and wait until the next controller, the same, has told everyone."""
        time.sleep(SETTLE_S)
        pid = self._cluster.broker_pid(1)
        assert pid is not None, "the controller does not run"
        forget_peak(pid)
        before_mb = memory_mb(pid, "VmRSS")
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
        assert brokers == len(self._ports) + 1, f"{brokers} brokers were told"
        return {
            "s": took_ms / 1000,
            "before MB": before_mb,
            "peak MB": memory_mb(pid, "VmHWM"),
        }

    def _told(self) -> list[tuple[int, int]]:
        """Brokers, and milliseconds, of each time."""
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
            inter_broker_protocol_max=NEWEST_INTER_BROKER_PROTOCOL,
            metadata_version_max=NEWEST_METADATA_VERSION,
        )
        return Operation(records=(registration,))


def _replicas(start: int) -> tuple[BrokerId, ...]:
    hosts = (FIRST_HOST + (start + step) % HOSTS for step in range(REPLICATION_FACTOR))
    return interned(tuple(map(BrokerId, hosts)))


def _created(number: int) -> TopicCreated:
    """Without leaders: nobody who hosts it lives."""
    numbers = range(number, number + PARTITIONS_PER_TOPIC)
    return TopicCreated(
        name=f"topic-{number:05}",
        topic_id=TopicId(number.to_bytes(ID_BYTES, "big")),
        partitions=tuple(
            NewPartition(replicas=_replicas(one), leader=NO_BROKER, isr=_replicas(one))
            for one in numbers
        ),
        controller_id=_OFFICE.controller_id,
        controller_epoch=_OFFICE.controller_epoch,
    )


def in_thread(runner: asyncio.Runner, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    """While the loop goes on to keep the stubs' session alive."""
    return runner.run(asyncio.to_thread(measure))


def forget_peak(pid: int) -> None:
    """``VmHWM`` begins anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def memory_mb(pid: int, field: str) -> float:
    """A field of /proc/PID/status."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.M)
    assert found is not None, field
    return int(found[1]) / 1000


# --- encoding alone -----------------------------------------------------------------------------


def image_of(topics: int) -> Image:
    """``topics`` of 100 partitions, and no broker."""
    by_name = {f"topic-{number:05}": _topic(number) for number in range(topics)}
    return Image(
        offset=MetadataOffset(1_000),
        topics=immutables.Map(by_name),
        topic_names=immutables.Map({topic.topic_id: name for name, topic in by_name.items()}),
    )


def _topic(number: int) -> Topic:
    return Topic(
        f"topic-{number:05}",
        TopicId(number.to_bytes(ID_BYTES, "big")),
        tuple(_partition(number + offset, epoch=3) for offset in range(PARTITIONS_PER_TOPIC)),
        MetadataOffset(2),
    )


def _partition(start: int, epoch: int) -> Partition:
    replicas = _replicas(start)
    leader = replicas[epoch % REPLICATION_FACTOR]
    return Partition(replicas, leader, LeaderEpoch(epoch), replicas, *_OFFICE, version=epoch)


def encode(topics: int) -> dict[str, float]:
    """One topic after another gets another leader epoch; the median of encoding everything."""
    image, requests = image_of(topics), ControlRequestBuilder(_OFFICE, ack_timeout_ms=1_000)
    size = len(requests.full_metadata(image).body)
    durations_ms = []
    for number in range(CHANGES):
        topic = _topic(number)
        changed = Topic(
            topic.name,
            topic.topic_id,
            (_partition(number, epoch=4), *topic.partitions[1:]),
            topic.version,
        )
        image = Image(
            offset=MetadataOffset(image.offset + 1),
            topics=image.topics.set(topic.name, changed),
            topic_names=image.topic_names,
        )
        began = time.perf_counter()
        requests.full_metadata(image)
        durations_ms.append((time.perf_counter() - began) * 1000)
    return {
        "bytes per partition": size / topics / PARTITIONS_PER_TOPIC,
        "changed ms": statistics.median(durations_ms),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Metadata fan-out", "one full UpdateMetadata to all brokers, serialized once", arguments
    )
    partitions = bench.pick(full=200_000, quick=50_000)
    topics = partitions // PARTITIONS_PER_TOPIC
    one_mb = 0.0
    for count in bench.pick(full=(1, 50, 200), quick=(1, 20)):
        with (
            stub_brokers(count) as ports,
            running_cluster(brokers=1, voters=1) as cluster,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            fan_out = FanOut(cluster, ports)
            runner.run(fan_out.fill(topics))
            figures = bench.repeat(functools.partial(in_thread, runner, fan_out.measure))
            runner.run(fan_out.close())
        one_mb = one_mb or figures["peak MB"]
        share = {"of 1 broker": round(figures["peak MB"] / one_mb, 3)}
        bench.row({"partitions": partitions, "brokers": count}, {**figures, **share})
    encoded = bench.repeat(lambda: in_own_process(encode, topics))
    bench.row({"partitions": partitions, "brokers": "encoding alone"}, encoded)
    bench.finish()


if __name__ == "__main__":
    main()
