"""A change of controller at up to 1,000 brokers and 10 million partitions.

"stubs": a controller as deployed tells stub brokers over gRPC, at levels 2 and 3 of
inter_broker_protocol (``bench/_fan_out.py``). "simulation": the controller's code in one process,
with brokers that answer at once and no network, at level 3. Its columns are the steps of a change
of controller: the image in memory, the decision who leads (nothing has to change), everything told
to all brokers, and the pass through its image with which each broker answers an INIT.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final, cast

import immutables

from bench._fan_out import PARTITIONS_PER_TOPIC, fan_out, memory_mb, replicas_from
from bench._kafka_load import in_own_process
from bench._support import Bench, Cell
from quorate.broker.controller.channels.control_request_queue import ChannelContext
from quorate.broker.controller.channels.control_requests import ControlRequestBuilder, hosted_by
from quorate.broker.controller.channels.control_transport import ControlKind, ControlResponse
from quorate.broker.controller.channels.controller_channel_manager import ControllerChannelManager
from quorate.broker.controller.managers.broker_manager import leadership_changes, liveness
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.tenure import TenureGuard
from quorate.broker.rpc.peer_channels import Peer
from quorate.common.types import (
    ID_BYTES,
    NO_SESSION,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    MetadataOffset,
    TopicId,
)
from quorate.metadata_log.features import METADATA_FROM_LOG
from quorate.metadata_log.image import Broker, Image
from quorate.metadata_log.partitions import Partition, Topic
from quorate.metadata_log.records import BrokerRegistration
from quorate_proto.v1 import control_pb2

LONG_MS: Final = 3_600_000
TENURE: Final = ControllerTenure(BrokerId(1), ControllerEpoch(1))


def image_of(brokers: int, partitions: int) -> Image:
    """Return an image in which every broker leads and follows as many partitions as the others."""
    topics = map(lambda number: _topic(number, brokers), range(partitions // PARTITIONS_PER_TOPIC))
    by_name = immutables.Map({topic.name: topic for topic in topics})
    return Image(
        offset=MetadataOffset(1_000_000),
        topics=by_name,
        topic_names=immutables.Map({topic.topic_id: name for name, topic in by_name.items()}),
        brokers=immutables.Map({one: _broker(one) for one in map(BrokerId, range(1, brokers + 1))}),
    )


def _topic(number: int, brokers: int) -> Topic:
    first = number * PARTITIONS_PER_TOPIC
    lists = [replicas_from(one, 1, brokers) for one in range(first, first + PARTITIONS_PER_TOPIC)]
    leaves = tuple(Partition(one, one[0], LeaderEpoch(1), one, *TENURE) for one in lists)
    topic_id = TopicId(number.to_bytes(ID_BYTES, "big"))
    return Topic(f"topic-{number:06}", topic_id, leaves, MetadataOffset(2))


def _broker(broker_id: BrokerId) -> Broker:
    registration = BrokerRegistration(
        broker_id=broker_id,
        session_id=NO_SESSION,
        incarnation_id=broker_id.to_bytes(ID_BYTES, "big"),
        kafka=Endpoint("127.0.0.1", 9092),
        grpc=Endpoint("127.0.0.1", 10_000 + broker_id),
        inter_broker_protocol_max=METADATA_FROM_LOG,
    )
    return Broker(registration, BrokerEpoch(broker_id), admitted=True)


class Answering:
    """A transport to brokers that answer at once."""

    async def send(
        self, peer: Peer, kind: ControlKind, body: bytes, timeout_ms: int
    ) -> ControlResponse:
        """Answer, after others have had their turn."""
        await asyncio.sleep(0)
        if kind is ControlKind.LEADER_AND_ISR:
            return control_pb2.LeaderAndIsrResponse()
        return control_pb2.UpdateMetadataResponse()


async def told_s(image: Image) -> float:
    """Return how long it takes until every broker has answered INIT and metadata."""
    shared = ChannelContext(
        requests=ControlRequestBuilder(TENURE, ack_timeout_ms=1_000),
        transport=Answering(),
        images=cast("Any", SimpleNamespace(image=image)),
        guard=TenureGuard(TENURE, session_timeout_ms=LONG_MS, on_end=lambda _: None),
        timeout_ms=1_000,
    )
    manager = ControllerChannelManager(shared)
    began = time.perf_counter()
    manager.start(image)
    await asyncio.gather(*(channel.drained() for channel in manager.channels))
    took_s = time.perf_counter() - began
    manager.close()
    return took_s


def simulate(brokers: int, partitions: int) -> dict[str, float]:
    """Measure the steps of a change of controller, each once."""

    before_mb = memory_mb(os.getpid(), "status", "VmRSS")
    image = image_of(brokers, partitions)
    image_mb = memory_mb(os.getpid(), "status", "VmRSS") - before_mb
    began = time.perf_counter()
    changes = leadership_changes(image, TENURE, liveness(image), unclean=lambda _: False)
    decided_s = time.perf_counter() - began
    assert not changes, "everybody lives"
    all_told_s = asyncio.run(told_s(image))
    began = time.perf_counter()
    hosted = hosted_by(image, BrokerId(1))
    pass_s = time.perf_counter() - began
    assert hosted, "broker 1 hosts nothing"
    return {
        "image MB": image_mb,
        "who leads s": decided_s,
        "all told s": all_told_s,
        "pass of a broker s": pass_s,
        "s": decided_s + all_told_s + pass_s,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Scale", "a change of controller with many brokers and partitions", arguments
    )
    full = ((100, 100_000), (200, 1_000_000), (1_000, 1_000_000))
    for brokers, partitions in bench.pick(full=full, quick=((20, 20_000),)):
        for level in (METADATA_FROM_LOG - 1, METADATA_FROM_LOG):
            case: dict[str, Cell] = {
                "how": "stubs",
                "level": level,
                "brokers": brokers,
                "partitions": partitions,
            }
            with fan_out(brokers, partitions, level) as measure:
                bench.row(case, bench.repeat(measure))
    simulated = bench.pick(full=((200, 1_000_000), (1_000, 10_000_000)), quick=((200, 100_000),))
    for brokers, partitions in simulated:
        size = {"brokers": brokers, "partitions": partitions}
        figures = bench.repeat(lambda b=brokers, p=partitions: in_own_process(simulate, b, p))  # type: ignore[misc]
        bench.row({"how": "simulation", "level": 3, **size}, figures)
    bench.finish()


if __name__ == "__main__":
    main()
