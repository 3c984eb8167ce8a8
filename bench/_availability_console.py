"""What ``bench.availability`` runs on the clients' host: a producer, and looks at the cluster."""

import time
from itertools import pairwise

from confluent_kafka.admin import AdminClient

from tests.support.acked_load import AckedLoad

_loads: list[AckedLoad] = []


def start(bootstrap: str, topic: str, partitions: int, every_s: float) -> None:
    """Produce with acks=all to every partition, with librdkafka's defaults."""
    load = AckedLoad(bootstrap, topic, partitions, {}, every_s=every_s)
    _loads.append(load)
    load.start()


def now_s() -> float:
    """The clock of the acknowledgements."""
    return time.monotonic()


def acknowledged(since_s: float) -> dict[int, int]:
    """Acknowledgements per partition since a time."""
    times = _loads[-1].acknowledged.times
    return {partition: sum(at > since_s for at in list(times[partition])) for partition in times}


def longest_gaps_s(since_s: float, until_s: float) -> dict[int, float]:
    """The longest time without an acknowledgement per partition, between two times."""
    found = {}
    for partition, times in _loads[-1].acknowledged.times.items():
        inside = [at for at in list(times) if since_s <= at <= until_s]
        found[partition] = max(b - a for a, b in pairwise([since_s, *inside, until_s]))
    return found


def stop() -> tuple[int, int]:
    """Stop the producer; how many records were acknowledged, and how many failed for good."""
    load = _loads.pop()
    load.close()
    return len(load.acknowledged.offsets), len(load.acknowledged.failures)


def leaders(bootstrap: str, topic: str) -> dict[int, tuple[int, int]]:
    """Leader and size of the ISR of each partition; nothing while nobody answers."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        found = admin.list_topics(topic, timeout=5).topics[topic].partitions
    except Exception:  # noqa: BLE001 - whatever it is, nobody answers
        return {}
    return {number: (one.leader, len(one.isrs)) for number, one in found.items()}
