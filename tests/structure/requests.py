"""The requests whose trips are counted, and how each is sent to a real cluster."""

import itertools
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from quorate.client.results import NewTopic
from quorate.client.security import read_options
from quorate.cluster.client_options import client_options_of
from quorate.spark.cluster_client import ClusterClient
from quorate.spark.retries import RetryPolicy
from quorate.testing import RunningCluster
from quorate_proto.v1.replication_pb2 import RangeReadRequest
from tests.support.kafka_wire import Values, read_answer, record_batch, request_frame, sized
from tests.support.waiting import wait_until

PRODUCE: Final = (0, 9)
METADATA: Final = (3, 8)
CREATE_TOPICS: Final = (19, 7)
INCREMENTAL_ALTER_CONFIGS: Final = (44, 1)
"""Kafka's number of the API, and the version asked for."""

ACKS_ALL: Final = -1
NO_LEADER: Final = -1
TIMEOUT_MS: Final = 10_000
TOPIC_RESOURCE: Final = 2
SET: Final = 0
RANGE: Final = (2, 8)
RECORDS: Final = 10

_numbers = itertools.count(1)
"""No topic and no value is used twice: setting a value that is in force changes nothing."""


class RequestFailed(Exception):
    """A request was answered with an error, so its trip says nothing."""


class Wire:
    """A connection to one broker in Kafka's protocol; one request at a time."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_MS / 1000)
        self._reader = self._socket.makefile("rb")

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def exchange(self, request: bytes) -> bytes:
        """Sends the request; the answer without its size."""
        self._socket.sendall(request)
        return self._reader.read(int.from_bytes(self._reader.read(4), "big"))

    def ask(self, api: tuple[int, int], values: Values) -> Any:  # noqa: ANN401 - kio's entities
        """Sends the request; the answer, read."""
        return read_answer(*api, self.exchange(sized(request_frame(*api, values))))[1]


class Request(ABC):
    """One kind of request, sent again and again.

    ``processes``: what each measured broker is in this trip → its id.
    """

    def __init__(self, processes: Mapping[str, int]) -> None:
        self.processes = processes

    @abstractmethod
    def prepare(self) -> None:
        """Does, before the window opens, everything that does not belong to the trip."""

    @abstractmethod
    def send(self) -> None:
        """Sends the request and waits for its answer: the window is open for exactly that long."""

    @abstractmethod
    def check(self) -> bool:
        """Looks at the answer and cleans up, once the window is closed; whether the window counts.

        Raises:
            RequestFailed: the answer is an error.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes the connections."""


class WireRequest(Request):
    """A request in Kafka's protocol; ``errors``: the error codes in an answer to it."""

    def __init__(
        self,
        processes: Mapping[str, int],
        address: str,
        api: tuple[int, int],
        values: Callable[[], Values],
        errors: Callable[[Any], list[int]],
    ) -> None:
        super().__init__(processes)
        self._wire = Wire(address)
        self._api = api
        self._values = values
        self._errors = errors
        self._request = self._answer = b""

    def prepare(self) -> None:
        self._request = sized(request_frame(*self._api, self._values()))

    def send(self) -> None:
        self._answer = self._wire.exchange(self._request)

    def check(self) -> bool:
        _, answer = read_answer(*self._api, self._answer)
        if any(self._errors(answer)):
            raise RequestFailed(str(answer))
        return True

    def close(self) -> None:
        self._wire.close()


class CreateTopic(WireRequest):
    """A new topic with one partition and one replica, asked of the controller's own broker.

    The controller places the partition at random, and does more in its own process if it takes the
    partition itself. ``hosted``: only those windows count in which it does; else only the others.
    """

    def __init__(
        self, cluster: RunningCluster, controller: int, other: int, *, hosted: bool
    ) -> None:
        super().__init__(
            {"controller": controller},
            cluster.broker_address(controller),
            CREATE_TOPICS,
            self._next_topic,
            lambda answer: [topic.error_code for topic in answer.topics],
        )
        self._cluster = cluster
        self._controller = controller
        self._hosted = hosted
        self._other = Wire(cluster.broker_address(other))
        self._name = ""

    def check(self) -> bool:
        super().check()
        wait_until(lambda: leader_of(self._other, self._name) != NO_LEADER, "the topic to be known")
        return (leader_of(self._other, self._name) == self._controller) is self._hosted

    def close(self) -> None:
        super().close()
        self._other.close()

    def _next_topic(self) -> Values:
        self._name = f"trip-{next(_numbers)}"
        topic = {
            "name": self._name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        return {"topics": [topic], "timeout": TIMEOUT_MS, "validate_only": False}


class RangeRequest(Request):
    """Some records of one partition, read over gRPC as a Spark executor reads them."""

    def __init__(self, cluster: RunningCluster, topic: str, leader: int) -> None:
        super().__init__({"leader": leader})
        security = read_options(client_options_of(cluster.folder))
        self._client = ClusterClient(cluster.bootstrap, RetryPolicy(3, 100), security)
        self._leader = cluster.broker_grpc_address(leader)
        start, end = RANGE
        self._request = RangeReadRequest(
            topic=topic, start_offset=start, end_offset=end, max_frame_bytes=1 << 20
        )
        self._frames: list[bytes] = []

    def prepare(self) -> None:
        self._frames = []

    def send(self) -> None:
        self._frames = list(self._client.open_range(self._leader, self._request))

    def check(self) -> bool:
        if not any(b"value" in frame for frame in self._frames):
            raise RequestFailed(f"no records in {self._frames!r}")
        return True

    def close(self) -> None:
        self._client.close()


class Failover(Request):
    """The leader of a partition is killed; the answer is there once a broker tells of another.

    Neither the killed broker nor the one that tells is the controller: nobody asks that one.
    """

    def __init__(self, cluster: RunningCluster, controller: int) -> None:
        super().__init__({"controller": controller})
        self._cluster = cluster
        self._victim, self._other = (one for one in cluster.broker_ids if one != controller)
        self._wire = Wire(cluster.broker_address(self._other))
        self._topic = ""

    def prepare(self) -> None:
        self._topic = new_topic(self._cluster, [self._victim, self._other])
        wait_until(lambda: self._leader() == self._victim, "the partition to have its first leader")
        wait_until(
            lambda: not self._cluster.status().under_replicated_partitions, "replicas in sync"
        )

    def send(self) -> None:
        self._cluster.kill_broker(self._victim)
        wait_until(lambda: self._leader() == self._other, "another leader", timeout_s=120)

    def check(self) -> bool:
        self._cluster.restart_broker(self._victim)
        return True

    def close(self) -> None:
        self._wire.close()

    def _leader(self) -> int:
        return leader_of(self._wire, self._topic)


def leader_of(wire: Wire, topic: str) -> int:
    """Who leads the topic's one partition, as that broker tells it; -1: it knows of nobody."""
    (described,) = wire.ask(METADATA, _metadata_of(topic)).topics
    return int(described.partitions[0].leader_id) if described.partitions else NO_LEADER


def new_topic(cluster: RunningCluster, replicas: Sequence[int]) -> str:
    """A topic of one partition on those brokers, the first of which leads; its name."""
    name = f"trip-{next(_numbers)}"
    with cluster.admin() as admin:
        for result in admin.create_topics([NewTopic(name=name, assignments=[list(replicas)])]):
            result.raise_for_error()
    return name


def produce(cluster: RunningCluster, replicas: Sequence[int]) -> Request:
    """A batch for a new topic on those brokers, acknowledged by all of them."""
    topic, leader = new_topic(cluster, replicas), replicas[0]
    return WireRequest(
        {"leader": leader},
        cluster.broker_address(leader),
        PRODUCE,
        lambda: _batch_for(topic),
        lambda answer: [
            partition.error_code
            for topic in answer.responses
            for partition in topic.partition_responses
        ],
    )


def alter_configs(cluster: RunningCluster, controller: int, other: int) -> Request:
    """Another value of one configuration of a topic, asked of a broker that has to pass it on."""
    topic = new_topic(cluster, [other])
    return WireRequest(
        {"receiving broker": other, "controller": controller},
        cluster.broker_address(other),
        INCREMENTAL_ALTER_CONFIGS,
        lambda: _change_of(topic),
        lambda answer: [resource.error_code for resource in answer.responses],
    )


def range_read(cluster: RunningCluster, leader: int) -> Request:
    """A few records of a topic that has some more."""
    topic = new_topic(cluster, [leader])
    wire = Wire(cluster.broker_address(leader))
    for _ in range(RECORDS):
        wire.ask(PRODUCE, _batch_for(topic))
    wire.close()
    return RangeRequest(cluster, topic, leader)


def _batch_for(topic: str) -> Values:
    partition = {"index": 0, "records": record_batch(count=1)}
    data = [{"name": topic, "partition_data": [partition]}]
    return {
        "transactional_id": None,
        "acks": ACKS_ALL,
        "timeout": TIMEOUT_MS,
        "topic_data": data,
    }


def _change_of(topic: str) -> Values:
    value = str(100_000 + next(_numbers))
    change = {"name": "max.message.bytes", "config_operation": SET, "value": value}
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": [change]}
    return {"resources": [resource], "validate_only": False}


def _metadata_of(topic: str) -> Values:
    return {
        "topics": [{"name": topic}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
