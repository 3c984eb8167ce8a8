"""This bench measures the CPU time of a broker per Produce and per Fetch with little in each.

One broker, alone on its core, one replica, ``log.flush=os``. The requests are made ahead, in the
shapes and versions of Java's clients and librdkafka, and are sent as fast as they are answered.
"""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from bench import _request_frames as frames
from bench._nodes import pids
from bench._request_lanes import Lane, cpu_ns, drive, pin
from bench._support import Bench
from bench.produce_matrix.systems import QUORATE, System
from bench.produce_matrix.workload import Workload
from quorate.testing import RunningCluster, running_cluster

PARTITIONS: Final = 12
SMALL: Final = (1, 200)
FULL: Final = (145, 100)
"""Records in a batch, and their bytes: 16 KiB in all."""
IN_FLIGHT: Final = 5
CONNECTIONS: Final = 50
_TIMEOUT_S: Final = 30.0
SLICES: Final = 20

Exchange = Callable[[int], None]
"""Has the broker answer so many requests."""


class Broker:
    """The broker that is measured."""

    def __init__(self, cluster: RunningCluster) -> None:
        (self.pid,) = pids(cluster)["broker"]
        self._system = System(QUORATE, cluster.bootstrap, [self.pid])
        self._address = cluster.broker_address(cluster.broker_ids[0])
        self._topics = 0

    def lane(self) -> Lane:
        """Return a new connection."""
        return Lane(self._address)

    def new_topic(self) -> str:
        """Return the name of a new topic, each partition of which has a small batch."""
        self._topics += 1
        topic = f"request-cost-{self._topics}"
        self._system.create_topic(topic, Workload(partitions=PARTITIONS, replicas=1))
        request = frames.produce(topic, [frames.batch(*SMALL)] * PARTITIONS)
        lane = self.lane()
        deadline = time.monotonic() + _TIMEOUT_S
        while _failed(lane.exchange(frames.PRODUCE, request)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic} takes no records")
            time.sleep(0.01)
        lane.close()
        return topic


def produce(
    broker: Broker, *, partitions: int, size: tuple[int, int], connections: int, in_flight: int
) -> Exchange:
    """Produce without idempotence, one batch for each partition in a request."""
    request = frames.produce(broker.new_topic(), [frames.batch(*size)] * partitions)
    lanes = [broker.lane() for _ in range(connections)]
    sources = [(lane, lambda: request) for lane in lanes]
    return partial(drive, sources, in_flight=in_flight)


def produce_idempotently(broker: Broker) -> Exchange:
    """Produce one full batch after another in the name of one idempotent producer."""
    lane = broker.lane()
    begun = lane.ask(
        frames.INIT_PRODUCER_ID,
        {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1},
    )
    one = frames.batch(*FULL)
    following = frames.idempotent(broker.new_topic(), one, FULL[0], begun.producer_id)
    return partial(drive, [(lane, following)], in_flight=IN_FLIGHT)


def fetch_as_librdkafka(broker: Broker, *, partitions: int) -> Exchange:
    """Fetch a small batch of each partition, all of which every request names."""
    offsets = dict.fromkeys(range(partitions), 0)
    request = frames.fetch(frames.LIBRDKAFKA_FETCH, broker.new_topic(), offsets)
    return partial(drive, [(broker.lane(), lambda: request)], in_flight=1)


def fetch_as_java(broker: Broker, *, news: int) -> Exchange:
    """Fetch in a session with all partitions, of which some have a small batch to read, which are
    others each time. A request names these, and those where the one before has read it.
    """
    topic = broker.new_topic()
    lane = broker.lane()
    begun = lane.exchange(frames.JAVA_FETCH, first_fetch(topic))
    requests = []
    for first in range(PARTITIONS):
        before = {(first - 1 + number) % PARTITIONS: 1 for number in range(news)}
        unread = {(first + number) % PARTITIONS: 0 for number in range(news)}
        requests.append(frames.fetch(frames.JAVA_FETCH, topic, before | unread))
    following = frames.in_session(begun.session_id, requests)
    for _ in requests:
        # What nobody has read yet is news, too.
        lane.exchange(frames.JAVA_FETCH, following())
    return partial(drive, [(lane, following)], in_flight=1)


def long_poll(broker: Broker) -> Exchange:
    """Produce a record for which a consumer waits in its session, again and again."""
    topic = broker.new_topic()
    consumer, producer = broker.lane(), broker.lane()
    record = frames.produce(topic, [frames.batch(*SMALL)])
    begun = consumer.exchange(frames.JAVA_FETCH, first_fetch(topic))
    poll = frames.LongPoll(topic, begun.session_id, range(PARTITIONS))

    def exchange(requests: int) -> None:
        for _ in range(requests):
            consumer.socket.sendall(poll.following())
            producer.socket.sendall(record)
            producer.answer()
            consumer.answer()

    return exchange


def first_fetch(topic: str) -> bytes:
    """Return the request that begins a session with all partitions, from their beginning."""
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    return frames.fetch(frames.JAVA_FETCH, topic, offsets, session=(0, 0))


CASES: Final[Mapping[str, Callable[[Broker], Exchange]]] = MappingProxyType(
    {
        "produce 1 x 200 B": partial(produce, partitions=1, size=SMALL, connections=1, in_flight=1),
        "produce 1 x 200 B, 50 connections": partial(
            produce, partitions=1, size=SMALL, connections=CONNECTIONS, in_flight=1
        ),
        "produce 1 x 16 KiB, 5 in flight": partial(
            produce, partitions=1, size=FULL, connections=1, in_flight=IN_FLIGHT
        ),
        "the same, idempotent": produce_idempotently,
        "produce 4 x 16 KiB, 5 in flight": partial(
            produce, partitions=4, size=FULL, connections=1, in_flight=IN_FLIGHT
        ),
        "fetch 1 partition": partial(fetch_as_librdkafka, partitions=1),
        "fetch 12 partitions": partial(fetch_as_librdkafka, partitions=PARTITIONS),
        "fetch in a session, 1 of 12 has news": partial(fetch_as_java, news=1),
        "fetch in a session, 12 of 12 have news": partial(fetch_as_java, news=PARTITIONS),
        "produce 1 x 200 B to a long poll": long_poll,
    }
)


def measure(broker: Broker, exchange: Exchange, requests: int) -> dict[str, float]:
    """Return what each request cost the broker, and how many it answered in a second.

    The cost is the median of many slices, and the least of them: others who use the machine make
    requests dearer, never cheaper.
    """
    exchange(requests // SLICES)
    costs_us = []
    begin_s = time.perf_counter()
    for _ in range(SLICES):
        before_ns = cpu_ns(broker.pid)
        exchange(requests // SLICES)
        costs_us.append((cpu_ns(broker.pid) - before_ns) / 1000 / (requests // SLICES))
    elapsed_s = time.perf_counter() - begin_s
    return {
        "CPU us/request": statistics.median(costs_us),
        "least": min(costs_us),
        "requests/s": requests / elapsed_s,
    }


def _failed(answer: Any) -> bool:  # noqa: ANN401 - of kio
    partitions = [one for topic in answer.responses for one in topic.partition_responses]
    return any(one.error_code.value for one in partitions)


def main() -> None:
    bench = Bench.from_command_line(
        "Request cost", "CPU of one broker per small Produce and Fetch, RF 1", selectable=True
    )
    requests = bench.pick(full=20_000, quick=4_000)
    cores = sorted(os.sched_getaffinity(0))
    with running_cluster(brokers=1, log_flush="os") as cluster:
        broker = Broker(cluster)
        if len(cores) > 1:
            pin(broker.pid, cores[0])
            pin(os.getpid(), cores[-1])
        for name, begin in CASES.items():
            if bench.pattern is None or bench.pattern in name:
                exchange = begin(broker)
                bench.row(
                    {"request": name}, bench.repeat(partial(measure, broker, exchange, requests))
                )
    bench.finish()


if __name__ == "__main__":
    main()
