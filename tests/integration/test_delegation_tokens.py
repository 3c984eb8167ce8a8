"""Delegation tokens of a real broker: made over SASL, logged in with, withdrawn with their key."""

import base64
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from quorate.client.admin import AdminClient
from quorate.client.results import ScramUpsertion
from quorate.common.configuration import parse_endpoint
from quorate.testing import RunningCluster, running_cluster
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_wire import WireClient
from tests.support.sasl import TokenClient, log_in, scram_client

pytestmark = pytest.mark.integration

CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
MECHANISM = "SCRAM-SHA-256"
OLD, NEW = "the key before", "the newest key"
HOUR_MS = 3_600_000


class Connection:
    """A client that logs in, and asks for tokens."""

    def __init__(self, wire: WireClient) -> None:
        self.wire = wire

    async def log_in(self, client: Any) -> bool:  # noqa: ANN401 - kafka-python is not typed
        """Whether the broker took the client for who it says it is."""
        return await log_in(self.wire, client, MECHANISM)

    async def make_token(self) -> Any:  # noqa: ANN401 - a kio response
        values = {
            "owner_principal_type": None,
            "owner_principal_name": None,
            "renewers": [{"principal_type": "User", "principal_name": "bob"}],
            "max_lifetime": -1,
        }
        return await self.wire.ask(CREATE, 3, values)


class Clients:
    """Connections to a cluster's one broker, closed together."""

    def __init__(self, cluster: RunningCluster, stack: AsyncExitStack) -> None:
        self._at = parse_endpoint("bootstrap.servers", cluster.broker_address(1))
        self._stack = stack

    async def connect(self) -> Connection:
        wire = await WireClient.connect(self._at)
        self._stack.push_async_callback(wire.close)
        return Connection(wire)

    async def as_alice(self) -> Connection:
        connection = await self.connect()
        assert await connection.log_in(scram_client("alice", "secret", MECHANISM))
        return connection

    async def by_token(self, token: Any) -> Connection | None:  # noqa: ANN401 - a kio response
        """None: the broker does not let it in."""
        connection = await self.connect()
        password = base64.b64encode(token.hmac).decode()
        client = TokenClient(token.token_id, password, MECHANISM)
        return connection if await connection.log_in(client) else None


def on_disk(folder: Path, secret: bytes) -> list[Path]:
    """Files with the secret in them, as it is, in base64 or in hexadecimal."""
    forms = (secret, base64.b64encode(secret), secret.hex().encode())
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(form in path.read_bytes() for form in forms)]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "token-keys"
    file.write_text(OLD)
    return file


async def test_f1_a_token_from_its_making_to_its_end(key_file: Path) -> None:
    settings = {
        "delegation.token.secret.key.file": str(key_file),
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    }
    with running_cluster(config=settings) as cluster:
        add_alice(cluster)
        async with AsyncExitStack() as stack:
            secrets = await token_life(Clients(cluster, stack), key_file)
        for secret in secrets:
            assert not on_disk(cluster.folder, secret)


def add_alice(cluster: RunningCluster) -> None:
    with AdminClient(grpc_addresses=[cluster.broker_grpc_address(1)]) as admin:
        alice = ScramUpsertion.of_password("alice", MECHANISM, "secret")
        for result in admin.alter_user_scram_credentials([alice]):
            result.raise_for_error()


async def token_life(clients: Clients, key_file: Path) -> list[bytes]:
    """What happens to two tokens of alice's; their secrets."""
    owner = await clients.as_alice()
    old = await owner.make_token()
    assert (old.error_code, old.principal_name) == (errors_pb2.NONE, "alice")
    by_token = await clients.by_token(old)
    assert by_token is not None
    again = await by_token.make_token()
    assert again.error_code == errors_pb2.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    key_file.write_text(f"{NEW}\n{OLD}\n")
    assert await clients.by_token(old) is not None
    new = await owner.make_token()
    assert await clients.by_token(new) is not None
    key_file.write_text(f"{NEW}\n")
    assert await clients.by_token(old) is None, "its key is withdrawn"

    renewed = await owner.wire.ask(RENEW, 2, {"hmac": new.hmac, "renew_period": HOUR_MS})
    assert renewed.error_code == errors_pb2.NONE
    described = await owner.wire.ask(DESCRIBE, 3, {"owners": None})
    assert {one.token_id for one in described.tokens} == {old.token_id, new.token_id}
    ended = await owner.wire.ask(EXPIRE, 2, {"hmac": new.hmac, "expiry_time_period": -1})
    assert ended.error_code == errors_pb2.NONE
    assert await clients.by_token(new) is None
    return [old.hmac, new.hmac]
