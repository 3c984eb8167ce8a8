"""Many wrong passwords from one address delay neither logins nor clients from others."""

import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from quorate.client.results import ScramUpsertion
from quorate.testing import RunningCluster, running_cluster
from tests.support.login_flood import authenticate, handshake

pytestmark = pytest.mark.integration

FLOODERS = 480
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
LOGINS = 6
MEDIAN_S = 1.5


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
    }
    with running_cluster(config=settings) as cluster:
        users = [
            ScramUpsertion.of_password(f"user{number}", "SCRAM-SHA-512", "right")
            for number in range(LOGINS)
        ]
        with cluster.admin() as admin:
            for result in admin.alter_user_scram_credentials(users):
                result.raise_for_error()
        yield cluster


@contextmanager
def flood(cluster: RunningCluster, source: str) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.support.login_flood", cluster.broker_address(1)]
    process = subprocess.Popen(
        [*command, source, str(FLOODERS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the flood ended before it began"
        yield
    finally:
        process.communicate(timeout=10)


def login_s(cluster: RunningCluster, user: str) -> float | None:
    """Return the seconds that a right login takes, or None if it is turned away."""
    host, _, port = cluster.broker_address(1).rpartition(":")
    began_s = time.monotonic()
    try:
        with socket.create_connection((host, int(port)), 20, (HERE, 0)) as one:
            stream = one.makefile("rb")
            one.sendall(handshake() + authenticate(user, "right"))
            for wanted in (1, 2):
                size, correlation_id, error_code = struct.unpack(">iih", stream.read(10))
                assert (correlation_id, error_code) == (wanted, 0)
                stream.read(size - 6)
    except (OSError, struct.error):
        return None
    return time.monotonic() - began_s


def median_s(times: Sequence[float | None]) -> float:
    return sorted(20.0 if one is None else one for one in times)[len(times) // 2]


def test_logins_from_elsewhere_and_of_known_users_hardly_wait(cluster: RunningCluster) -> None:
    """Before there were queues by address, each of these took 4 to 9 s."""
    assert login_s(cluster, "user0") is not None
    with flood(cluster, ELSEWHERE):
        new = [login_s(cluster, f"user{number}") for number in range(1, LOGINS)]
        again = [login_s(cluster, "user0") for _ in range(LOGINS)]
    with flood(cluster, HERE):
        behind = [login_s(cluster, "user0") for _ in range(LOGINS)]
    assert median_s(new) < MEDIAN_S
    assert median_s(again) < MEDIAN_S
    assert median_s(behind) < MEDIAN_S, "the password of user0 is not hashed again"
