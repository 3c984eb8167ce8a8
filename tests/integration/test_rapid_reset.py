"""HTTP/2 rapid reset at a broker's gRPC port: streams opened and cancelled as fast as they go."""

import logging
import threading
import time

import pytest

from bench.slow_consumers import PeakMemory
from quorate.testing.pytest_plugin import ClusterFactory
from tests.support.http2 import Http2Client
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

log = logging.getLogger(__name__)

CONNECTIONS = 4
RESETS_AT_ONCE = 1_000
ATTACK_S = 4.0
MEMORY_BOUND_MB = 400
OTHERS_WAIT_S = 15.0
PATHS = (
    "/quorate.v1.Admin/ClusterStatus",
    pytest.param("/no.such/Method", marks=pytest.mark.slow),
)


@pytest.mark.parametrize("path", PATHS)
def test_others_are_served_while_streams_are_reset(
    quorate_cluster: ClusterFactory, path: str
) -> None:
    cluster = quorate_cluster()
    before = cluster.status()
    pid = cluster.broker_pid(1)
    assert pid is not None
    memory = PeakMemory(pid)
    base_mb = memory.peak_mb
    end_s = time.monotonic() + ATTACK_S
    resets = [0] * CONNECTIONS

    def attack(number: int) -> None:
        while time.monotonic() < end_s:
            with Http2Client(cluster.broker_grpc_address(1), OTHERS_WAIT_S) as client:
                while time.monotonic() < end_s and client.reset_rapidly(RESETS_AT_ONCE, path):
                    resets[number] += RESETS_AT_ONCE

    threads = [threading.Thread(target=attack, args=(n,)) for n in range(CONNECTIONS)]
    waits_s: list[float] = []
    with memory.watched(), RawClient(cluster.bootstrap) as kafka:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            begin_s = time.monotonic()
            assert kafka.is_served()
            waits_s.append(time.monotonic() - begin_s)
        for thread in threads:
            thread.join()
        cluster.status()
    log.info(
        "%d resets, Kafka clients waited %.3f s at most, %.0f MB more",
        sum(resets), max(waits_s), memory.peak_mb - base_mb,
    )  # fmt: skip
    assert sum(resets) >= CONNECTIONS * RESETS_AT_ONCE
    assert max(waits_s) < OTHERS_WAIT_S
    assert memory.peak_mb - base_mb < MEMORY_BOUND_MB
    after = cluster.status()
    assert after.controller_epoch == before.controller_epoch
    assert [one.epoch for one in after.brokers] == [one.epoch for one in before.brokers]
