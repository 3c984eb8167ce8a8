"""Requests that stopped a broker for seconds, or took its memory, do neither any more (issue 17,
finding 3)."""

import resource
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from bench.hostile_requests.values import VICTIM
from bench.hostile_requests.wire import Wire
from bench.hostile_requests.world import ROOT, world
from quorate.testing import RunningCluster
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_wire import read_answer, request_frame, sized

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PARTITIONS: Final = 1_000
GROWTH_BYTES: Final = 96 << 20
"""What the broker may grow by: the elements of one request at its price, and the objects and bytes
of its response. Before, the requests below took up to 1.7 GB."""
WAIT_S: Final = 1.0
"""The longest that another client waits for an answer, on a machine that is busy with other tests.
Alone it is a few hundredths of a second. Before, it was up to 31 s."""
ANSWERS: Final = 10
"""The answers that another client gets, one after the other, while a request over many items is
carried out. A broker that carries it out in one go answers none."""

MANY: Final = 9_000
TOO_MANY: Final = 100_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with world(1, {}, partitions=PARTITIONS) as cluster:
        yield cluster


def describe_configs(count: int) -> dict[str, Any]:
    broker = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
    return {
        "resources": [broker] * count,
        "include_synonyms": True,
        "include_documentation": True,
    }


def topics_of(count: int, *, name: str = "name", **partition: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """The partitions of the victim, again and again."""
    fields = partition or None
    numbers = [number % PARTITIONS for number in range(count)]
    inner = [{"partition_index": n, **partition} for n in numbers] if fields else numbers
    return [{name: VICTIM, "partitions": inner}]


def list_offsets(count: int) -> dict[str, Any]:
    topics = topics_of(count, timestamp=-1, current_leader_epoch=-1)
    return {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": 1_000}


def delete_records(count: int) -> dict[str, Any]:
    return {"topics": topics_of(count, offset=0), "timeout": 5_000}


def elect_leaders(count: int) -> dict[str, Any]:
    return {
        "election_type": 0,
        "topic_partitions": topics_of(count, name="topic"),
        "timeout": 20_000,
    }


def reassign(count: int) -> dict[str, Any]:
    return {"timeout": 20_000, "topics": topics_of(count, replicas=None)}


class Ask(NamedTuple):
    """A request, the array with its results, and how many there are of them. A refused request has
    its error code instead, or -1 if its connection is closed.
    """

    key: int
    version: int
    values: dict[str, Any]
    results: str
    expected: int


REPEATED: Final[Mapping[str, Ask]] = {
    "describe_configs": Ask(32, 4, describe_configs(2_000), "results", 1),
    "describe_groups": Ask(
        15, 5, {"groups": [VICTIM] * 300, "include_authorized_operations": True}, "groups", 1
    ),
    "offset_fetch": Ask(
        9,
        8,
        {"groups": [{"group_id": VICTIM, "topics": None}] * 300, "require_stable": False},
        "groups",
        1,
    ),
    "metadata": Ask(
        3,
        9,
        {
            "topics": [{"name": VICTIM}] * 5_000,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        },
        "topics",
        1,
    ),
}
MANY_ITEMS: Final[Mapping[str, Ask]] = {
    "list_offsets": Ask(2, 8, list_offsets(4 * MANY), "topics", 1),
    "delete_records": Ask(21, 2, delete_records(MANY), "topics", 1),
    "elect_leaders": Ask(43, 2, elect_leaders(4 * MANY), "replica_election_results", 1),
    "alter_partition_reassignments": Ask(45, 0, reassign(4 * MANY), "responses", 1),
}
REFUSED: Final[Mapping[str, Ask]] = {
    "list_offsets": Ask(2, 8, list_offsets(TOO_MANY), "", -1),
    "delete_records": Ask(21, 2, delete_records(TOO_MANY), "", -1),
    "elect_leaders": Ask(43, 2, elect_leaders(TOO_MANY), "", errors_pb2.INVALID_REQUEST),
    "alter_partition_reassignments": Ask(45, 0, reassign(TOO_MANY), "", errors_pb2.INVALID_REQUEST),
}


class Watched:
    """Another client, and the memory of the broker, while a block runs."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        pid = cluster.broker_pid(1)
        self._statm = Path(f"/proc/{pid}/statm")
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask), threading.Thread(target=self._look)]
        self._begun_bytes = self._resident_bytes()
        self.answers = 0
        self.waits_s: list[float] = []
        self.grown_bytes = 0
        self.elapsed_s = 0.0

    def __enter__(self) -> "Watched":
        self._begun_s = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.elapsed_s = time.monotonic() - self._begun_s
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        with Wire(self._cluster.broker_address(1), ROOT) as wire:
            while not self._over.is_set():
                asked_s = time.monotonic()
                wire.ask(2, 5, list_offsets(1))
                self.waits_s.append(time.monotonic() - asked_s)
                self.answers += not self._over.is_set()

    def _look(self) -> None:
        while not self._over.wait(0.01):
            self.grown_bytes = max(self.grown_bytes, self._resident_bytes() - self._begun_bytes)

    def _resident_bytes(self) -> int:
        return int(self._statm.read_text().split()[1]) * resource.getpagesize()


def carry_out(cluster: RunningCluster, ask: Ask, answers: int = 0) -> Any:  # noqa: ANN401 - of kio
    """Send a request beside another client, check what that noticed, and return the response. The
    other client gets so many ``answers`` meanwhile.

    Raises:
        ConnectionError: the broker closed the connection.
    """
    frame = sized(request_frame(ask.key, ask.version, ask.values))
    with Wire(cluster.broker_address(1), ROOT) as wire, Watched(cluster) as watched:
        wire.socket.sendall(frame)
        answer = wire.answer()
    assert watched.grown_bytes < GROWTH_BYTES
    assert max(watched.waits_s, default=0.0) < WAIT_S
    assert watched.answers >= answers
    return read_answer(ask.key, ask.version, answer)[1]


@pytest.mark.parametrize("name", REPEATED)
def test_what_is_named_again_and_again_is_answered_once(cluster: RunningCluster, name: str) -> None:
    ask = REPEATED[name]
    assert len(getattr(carry_out(cluster, ask), ask.results)) == ask.expected


@pytest.mark.parametrize("name", MANY_ITEMS)
def test_others_are_served_while_a_request_over_many_items_is_carried_out(
    cluster: RunningCluster, name: str
) -> None:
    ask = MANY_ITEMS[name]
    assert len(getattr(carry_out(cluster, ask, ANSWERS), ask.results)) == ask.expected


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_over_its_price_is_refused_before_anything_is_done(
    cluster: RunningCluster, name: str
) -> None:
    ask = REFUSED[name]
    if ask.expected < 0:
        with pytest.raises(ConnectionError):
            carry_out(cluster, ask)
    else:
        assert carry_out(cluster, ask).error_code == ask.expected
