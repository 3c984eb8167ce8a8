"""Everything that clients are told of 200,000 partitions, sent to 1, 50 and 200 brokers.

The controller is the real one's publisher over gRPC in a process of its own; the brokers answer
and keep nothing, and host nothing themselves: leadership is another request. The original design
needed a request in memory per broker, 30 GB for 200 of them. "changed ms": encoding everything
again when one topic has changed.
"""

import asyncio
import functools
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import immutables
import uvloop

from bench._kafka_load import in_own_process
from bench._stub_brokers import stub_brokers
from bench._support import Bench
from broker.controller.control_requests import ControlRequests
from broker.controller.lane import Correspondence
from broker.controller.managers.office import Office
from broker.controller.publisher import Publisher
from broker.controller.transport import GrpcControlTransport
from broker.peers import PeerChannels
from metadata_log.image import Broker, Controller, Image, Partition, Topic, interned
from metadata_log.records import BrokerRegistration
from metadata_log.types import (
    ID_BYTES,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    MetadataOffset,
    SessionId,
    TopicId,
)

PARTITIONS_PER_TOPIC: Final = 100
REPLICATION_FACTOR: Final = 3
HOSTS: Final = 200
"""Brokers that the replicas are spread over; none of them is among those who are told."""
FIRST_HOST: Final = 1_001
CHANGES: Final = 21
TIMEOUT_MS: Final = 60_000
GIVE_UP_S: Final = 300.0

_OFFICE: Final = Office(BrokerId(1), ControllerEpoch(1))


def image_of(ports: Sequence[int], topics: int) -> Image:
    """``topics`` of 100 partitions, and a live broker at each port."""
    brokers = {
        BrokerId(number): Broker(_registration(number, port), BrokerEpoch(number), admitted=True)
        for number, port in enumerate(ports, 1)
    }
    by_name = {f"topic-{number:05}": _topic(number) for number in range(topics)}
    return Image(
        offset=MetadataOffset(1_000),
        controller=Controller(BrokerId(1), SessionId(bytes(ID_BYTES)), 0, MetadataOffset(1)),
        controller_epoch=ControllerEpoch(1),
        brokers=immutables.Map(brokers),
        topics=immutables.Map(by_name),
        topic_names=immutables.Map({topic.topic_id: name for name, topic in by_name.items()}),
    )


def _registration(number: int, port: int) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=BrokerId(number),
        session_id=SessionId(number.to_bytes(ID_BYTES, "big")),
        incarnation_id=bytes(ID_BYTES),
        kafka=Endpoint("127.0.0.1", 9092),
        grpc=Endpoint("127.0.0.1", port),
    )


def _topic(number: int) -> Topic:
    return Topic(
        f"topic-{number:05}",
        TopicId(number.to_bytes(ID_BYTES, "big")),
        tuple(_partition(number + offset, epoch=3) for offset in range(PARTITIONS_PER_TOPIC)),
        MetadataOffset(2),
    )


def _partition(start: int, epoch: int) -> Partition:
    hosts = (FIRST_HOST + (start + step) % HOSTS for step in range(REPLICATION_FACTOR))
    replicas = interned(tuple(map(BrokerId, hosts)))
    leader = replicas[epoch % REPLICATION_FACTOR]
    return Partition(replicas, leader, LeaderEpoch(epoch), replicas, *_OFFICE, version=epoch)


def publish(ports: Sequence[int], topics: int) -> dict[str, float]:
    """The figures of one controller: runs in a process of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_publish(image_of(ports, topics)))


async def _publish(image: Image) -> dict[str, float]:
    def deposed(epoch: ControllerEpoch) -> None:
        raise AssertionError(f"nobody knows of controller epoch {epoch}")

    channels = PeerChannels()
    requests = ControlRequests(_OFFICE, TIMEOUT_MS)
    publisher = Publisher(
        Correspondence(
            controller_epoch=_OFFICE.controller_epoch,
            requests=requests,
            transport=GrpcControlTransport(channels),
            image=lambda: image,
            timeout_ms=TIMEOUT_MS,
            on_deposed=deposed,
        )
    )
    before_mb = _resident_mb("VmRSS")
    began = time.perf_counter()
    publisher.start(image)
    async with asyncio.timeout(GIVE_UP_S):
        await asyncio.gather(*(channel.drained() for channel in publisher.channels))
    took_s = time.perf_counter() - began
    peak_mb = _resident_mb("VmHWM")
    partitions = len(image.topics) * PARTITIONS_PER_TOPIC
    body = requests.full_metadata(image).body
    publisher.close()
    await channels.close()
    return {
        "s": took_s,
        "before MB": before_mb,
        "peak MB": peak_mb,
        "bytes per partition": len(body) / partitions,
        "changed ms": _changed_ms(requests, image),
    }


def _changed_ms(requests: ControlRequests, image: Image) -> float:
    """One topic after another gets another leader epoch; the median of encoding everything."""
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
            controller=image.controller,
            controller_epoch=image.controller_epoch,
            brokers=image.brokers,
            topics=image.topics.set(topic.name, changed),
            topic_names=image.topic_names,
        )
        began = time.perf_counter()
        requests.full_metadata(image)
        durations_ms.append((time.perf_counter() - began) * 1000)
    return statistics.median(durations_ms)


def _resident_mb(field: str) -> float:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    assert found is not None, field
    return int(found[1]) / 1000


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Metadata fan-out", "one full UpdateMetadata to all brokers, serialized once", arguments
    )
    partitions = bench.pick(full=200_000, quick=50_000)
    one_mb = 0.0
    for count in bench.pick(full=(1, 50, 200), quick=(1, 20)):
        with stub_brokers(count) as ports:
            measure = functools.partial(in_own_process, publish, ports, partitions // 100)
            figures = bench.repeat(measure)
        one_mb = one_mb or figures["peak MB"]
        share = {"of 1 broker": round(figures["peak MB"] / one_mb, 3)}
        bench.row({"partitions": partitions, "brokers": count}, {**figures, **share})
    bench.finish()


if __name__ == "__main__":
    main()
