"""Over two brokers and a restart, SCRAM answers strangers as it answers users."""

import base64
import struct
from collections.abc import Iterator

import pytest

from quorate.client.results import ScramUpsertion
from quorate.testing import RunningCluster, running_cluster
from tests.support.raw_client import RawClient, string
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

USERS = [f"user-{number}" for number in range(4)]
STRANGERS = [f"ghost-{number}" for number in range(4)]
_HANDSHAKE, _AUTHENTICATE = 17, 36
MECHANISM = "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    settings = {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"}
    with running_cluster(brokers=2, config=settings) as cluster:
        users = [ScramUpsertion.of_password(user, MECHANISM, "right") for user in USERS]
        with cluster.admin() as admin:
            for result in admin.alter_user_scram_credentials(users):
                result.raise_for_error()
        wait_until(
            lambda: len({challenge(cluster, one, USERS[-1]) for one in cluster.broker_ids}) == 1,
            "all brokers to know the users",
        )
        yield cluster


def challenge(
    cluster: RunningCluster, broker_id: int, user: str, extension: str = ""
) -> tuple[bytes, int]:
    """Return the salt and the iterations that the broker answers with."""
    with RawClient(cluster.broker_address(broker_id)) as client:
        client.call(_HANDSHAKE, 1, string(MECHANISM))
        first = f"n,,n={user},r=abc{extension}".encode()
        answer = client.call(_AUTHENTICATE, 0, struct.pack(">i", len(first)) + first)
        fields = dict(one.split("=", 1) for one in answer[8:].decode().split(","))
        return base64.b64decode(fields["s"]), int(fields["i"])


def test_strangers_look_like_users_and_the_same_on_every_broker(cluster: RunningCluster) -> None:
    one, other = (
        {user: challenge(cluster, broker_id, user) for user in (*USERS, *STRANGERS)}
        for broker_id in cluster.broker_ids
    )
    assert one == other
    assert {(len(salt), iterations) for salt, iterations in one.values()} == {(24, 8_192)}
    assert len({salt for salt, _ in one.values()}) == len(one)
    cluster.kill_broker(2)
    cluster.restart_broker(2)
    assert challenge(cluster, 2, STRANGERS[0]) == one[STRANGERS[0]]


def test_a_token_that_is_not_there_is_the_same_on_every_broker(cluster: RunningCluster) -> None:
    asked = {
        challenge(cluster, broker_id, "a-token", ",tokenauth=true")
        for broker_id in cluster.broker_ids
    }
    assert len(asked) == 1
