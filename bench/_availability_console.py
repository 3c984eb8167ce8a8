"""The part of ``bench.availability`` on the clients' host: it produces, and asks for the status."""

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from confluent_kafka.admin import AdminClient

from tests.support.acked_load import AckedLoad

PATIENT: Final = "default client"
IMPATIENT: Final = "stall"
"""A client that asks again soon goes on when the cluster does, unless links are too slow for it.
Another one shows also what it waits for."""

CLIENTS: Final[Mapping[str, Mapping[str, str | int]]] = {
    PATIENT: {},
    IMPATIENT: {
        "request.timeout.ms": 1_000,
        "socket.timeout.ms": 1_500,
        "retry.backoff.max.ms": 200,
        "topic.metadata.refresh.interval.ms": 500,
    },
}

_loads: dict[str, AckedLoad] = {}


def start(bootstrap: str, topic: str, partitions: int, every_s: float) -> None:
    """Produce with acks=all to every partition, with both clients."""
    for name, settings in CLIENTS.items():
        _loads[name] = AckedLoad(bootstrap, topic, partitions, settings, every_s=every_s)
        _loads[name].start()


def now_s() -> float:
    """The clock of the acknowledgements."""
    return time.monotonic()


def acknowledged(since_s: float) -> dict[int, int]:
    """Acknowledgements per partition since a time, of the client that waits longest."""
    times = _loads[PATIENT].acknowledged.times
    return {
        partition: sum(at > since_s for at in list(of)[-1000:]) for partition, of in times.items()
    }


def longest_gaps_s(clients: Sequence[str], since_s: float, until_s: float) -> dict[int, float]:
    """The longest time per partition, between two others, without an acknowledgement of any of
    the clients."""
    inside: dict[int, list[float]] = {}
    for client in clients:
        for partition, times in _loads[client].acknowledged.times.items():
            found = inside.setdefault(partition, [])
            found += [at for at in list(times) if since_s <= at <= until_s]
    return {
        partition: max(b - a for a, b in pairwise([since_s, *sorted(times), until_s]))
        for partition, times in inside.items()
    }


def stop() -> tuple[int, int]:
    """Stop the producers; how many records were acknowledged, and how many failed for good."""
    for load in _loads.values():
        load.close()
    acknowledged = [load.acknowledged for load in _loads.values()]
    return sum(len(one.offsets) for one in acknowledged), sum(
        len(one.failures) for one in acknowledged
    )


def leaders(bootstrap: str, topic: str) -> dict[int, tuple[int, int]]:
    """Leader and size of the ISR of each partition; nothing while nobody answers."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        found = admin.list_topics(topic, timeout=5).topics[topic].partitions
    except Exception:  # noqa: BLE001 - whatever it is, nobody answers
        return {}
    return {number: (one.leader, len(one.isrs)) for number, one in found.items()}
