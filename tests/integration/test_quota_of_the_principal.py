"""A quota holds for its user and client id, or its address, however many connections they open."""

import itertools
import struct
import threading
import time
from typing import Any

import grpc
import pytest

from quorate.client.results import NewTopic, QuotaAlteration, QuotaEntity
from quorate.testing.pytest_plugin import ClusterFactory
from quorate_proto.v1 import replication_pb2
from tests.support.raw_client import RawClient, fetch, produce, record_batch, string

pytestmark = pytest.mark.integration

THREADS = 6
CONNECTIONS = 15
CREATE_TOPICS = 19
RATE = 1_000_000
BATCH = record_batch(bytes(200_000))
SPAN_S = 4.0
WINDOWS_S = 2
"""The windows of the quota are short, because what fits into them is admitted as one burst."""


def test_q5_six_threads_that_reconnect_after_each_request_have_one_quota(
    quorate_cluster: ClusterFactory,
) -> None:
    cluster = quorate_cluster(brokers=1, config={"quota.window.num": WINDOWS_S})
    client = QuotaEntity(client_id="test")
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(name="t", num_partitions=1, replication_factor=1)])
        limits = {"producer_byte_rate": float(RATE), "consumer_byte_rate": float(RATE)}
        admin.alter_client_quotas([QuotaAlteration(client, limits)])[0].raise_for_error()
    produced = _rate(cluster.bootstrap, _produce_once)
    fetched = _rate(cluster.bootstrap, _fetch_once)
    burst = RATE * (WINDOWS_S + 1) / SPAN_S
    assert 0.5 * RATE < produced < RATE + burst
    assert 0.5 * RATE < fetched < RATE + burst


@pytest.mark.parametrize("version", [pytest.param(4, marks=pytest.mark.slow), 7])
def test_kip599_new_client_ids_and_connections_do_not_evade_a_users_quota(
    quorate_cluster: ClusterFactory, version: int
) -> None:
    """Version 4 is of clients that may not be refused, and 7 of those that are."""
    cluster = quorate_cluster(brokers=1, config={"controller.quota.window.num": 1})
    with cluster.admin() as admin:
        every_user = QuotaAlteration(QuotaEntity(user=""), {"controller_mutation_rate": 5.0})
        admin.alter_client_quotas([every_user])[0].raise_for_error()
    numbers = itertools.count()

    def create_once(address: str) -> int:
        name = f"made-up-{next(numbers)}"
        with RawClient(address, client_id=name) as client:
            client.call(CREATE_TOPICS, version, _creating(name, flexible=version >= 5))
        return 0

    _rate(cluster.bootstrap, create_once)
    with cluster.admin() as admin:
        created = sum(name.startswith("made-up-") for name in admin.list_topics())
    assert 10 <= created <= 5 + 5 * (SPAN_S + 1) + THREADS


def _creating(name: str, *, flexible: bool) -> bytes:
    """The request to create one topic of one partition."""
    if not flexible:
        topic = string(name) + struct.pack(">ihii", 1, 1, 0, 0)
        return struct.pack(">i", 1) + topic + struct.pack(">ib", 10_000, 0)
    topic = bytes([len(name) + 1]) + name.encode() + struct.pack(">ihbbb", 1, 1, 1, 1, 0)
    return b"\0\2" + topic + struct.pack(">ibb", 10_000, 0, 0)


def test_kip612_connections_of_one_address_are_begun_at_its_rate(
    quorate_cluster: ClusterFactory,
) -> None:
    cluster = quorate_cluster(brokers=1, config={"quota.window.num": 1})
    with cluster.admin() as admin:
        every_address = QuotaAlteration(QuotaEntity(ip=""), {"connection_creation_rate": 5.0})
        admin.alter_client_quotas([every_address])[0].raise_for_error()
    began_s = time.monotonic()
    clients = [RawClient(cluster.bootstrap) for _ in range(CONNECTIONS)]
    for client in clients:
        assert client.is_served(), "it waits, and is not refused"
    assert time.monotonic() - began_s > (CONNECTIONS - 5) / 5 - 0.5
    for client in clients:
        with client:
            assert client.is_served(), "the rate is of new connections only"


def test_q11_a_quota_of_a_user_holds_over_grpc(quorate_cluster: ClusterFactory) -> None:
    cluster = quorate_cluster(brokers=1, config={"quota.window.num": WINDOWS_S})
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(name="t", num_partitions=1, replication_factor=1)])
        _produce_once(cluster.bootstrap)
        every_user = QuotaAlteration(QuotaEntity(user=""), {"consumer_byte_rate": float(RATE)})
        admin.alter_client_quotas([every_user])[0].raise_for_error()
    request = replication_pb2.RangeReadRequest(topic="t", start_offset=0, end_offset=1)
    with grpc.insecure_channel(cluster.broker_grpc_address(1)) as channel:
        read: Any = channel.unary_stream("/quorate.v1.RangeRead/Read")

        def read_once(_address: str) -> int:
            return sum(map(len, read(request.SerializeToString())))

        assert 0.5 * RATE < _rate("", read_once) < RATE * (SPAN_S + WINDOWS_S + 1) / SPAN_S


def _produce_once(address: str) -> int:
    with RawClient(address) as client:
        assert produce(client, "t", 0, BATCH).error_code == 0
    return len(BATCH)


def _fetch_once(address: str) -> int:
    with RawClient(address) as client:
        return len(fetch(client, "t", 0, 0).records)


def _rate(address: str, once: object) -> float:
    """Return the bytes per second of all threads together."""
    assert callable(once)
    moved: list[int] = []
    ends_s = time.monotonic() + SPAN_S

    def repeat() -> None:
        while time.monotonic() < ends_s:
            size = once(address)
            if time.monotonic() < ends_s:
                moved.append(size)

    threads = [threading.Thread(target=repeat) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(moved) / SPAN_S
