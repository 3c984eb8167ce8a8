"""Measures how a new controller tells 200 brokers which of 200,000 partitions they lead.

It sends INIT LeaderAndIsr and all metadata, at replication factor 3 and each protocol level. Level
1 is the old form, with each receiver's broker epoch in it. At level 2 all brokers get the same
bytes, at level 3 an offset of the metadata log. Columns: seconds until all have answered, bytes
sent, and the controller's memory: peak RSS meanwhile, and PSS after it. The original design needed
a request in memory for each broker, 30 GB for 200 of them. "bytes per partition", and "changed ms"
to encode everything when one topic has changed, are of UpdateMetadata at level 2.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Final

import immutables

from bench._fan_out import PARTITIONS_PER_TOPIC, REPLICATION_FACTOR, fan_out, replicas_from
from bench._kafka_load import in_own_process
from bench._support import Bench
from quorate.broker.controller.channels.control_requests import ControlRequestBuilder
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.common.types import (
    ID_BYTES,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    MetadataOffset,
    TopicId,
)
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Partition, Topic

HOSTS: Final = 200
FIRST_HOST: Final = 1_001
CHANGES: Final = 21
LEVELS: Final = (1, 2, 3)

_OFFICE: Final = ControllerTenure(BrokerId(1), ControllerEpoch(1))

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
    replicas = replicas_from(start, FIRST_HOST, HOSTS)
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
        "Metadata fan-out", "what a new controller tells every broker, by level", arguments
    )
    partitions = bench.pick(full=200_000, quick=20_000)
    for level in LEVELS:
        few_mb = 0.0
        for brokers in bench.pick(full=(3, 50, 200), quick=(3, 20)):
            with fan_out(brokers, partitions, level) as measure:
                figures = bench.repeat(measure)
            few_mb = few_mb or figures["peak RSS MB"]
            share = {"of 3 brokers": round(figures["peak RSS MB"] / few_mb, 3)}
            case = {"level": level, "partitions": partitions, "brokers": brokers}
            bench.row(case, {**figures, **share})
    encoded = bench.repeat(lambda: in_own_process(encode, partitions // PARTITIONS_PER_TOPIC))
    bench.row({"level": 2, "partitions": partitions, "brokers": "encoding alone"}, encoded)
    bench.finish()


if __name__ == "__main__":
    main()
