"""What was tried against a real broker: the rows of docs/SECURITY.md, "What was tried"."""

import asyncio
import base64
import json
import re
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from quorate.client.results import ScramUpsertion
from quorate.common.configuration import parse_endpoint
from quorate.testing import RunningCluster, running_cluster
from quorate_proto.v1 import errors_pb2
from tests.support.cli import quorate, quorate_error
from tests.support.kafka_wire import WireClient
from tests.support.sasl import TokenClient, log_in, scram_client
from tests.support.waiting import async_wait_until

pytestmark = pytest.mark.integration

MECHANISM: Final = "SCRAM-SHA-256"
METADATA, HANDSHAKE, AUTHENTICATE, CREATE, RENEW, EXPIRE = 3, 17, 36, 38, 39, 40
USERS: Final = ("alice", "bob", "mallory")
ROOT: Final = "root"
HOUR_MS: Final = 3_600_000
SHORT_MS: Final = 2_000

Connect = Callable[[], Awaitable[WireClient]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{ROOT}",
        "delegation.token.secret.key": "a secret of the test",
        "delegation.token.expiry.check.interval.ms": 1_000,
        "connection.failed.authentication.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    with running_cluster(config=settings) as running:
        with running.admin() as admin:
            users = [ScramUpsertion.of_password(one, MECHANISM, "secret") for one in (*USERS, ROOT)]
            for result in admin.alter_user_scram_credentials(users):
                result.raise_for_error()
        yield running


@asynccontextmanager
async def connections(cluster: RunningCluster) -> AsyncIterator[Connect]:
    """Open connections to the first broker, and close them in the end."""
    at = parse_endpoint("bootstrap.servers", cluster.broker_address(1))
    async with AsyncExitStack() as stack:

        async def opened() -> WireClient:
            wire = await WireClient.connect(at)
            stack.push_async_callback(wire.close)
            return wire

        yield opened


@pytest.fixture
async def connect(cluster: RunningCluster) -> AsyncIterator[Connect]:
    async with connections(cluster) as opened:
        yield opened


async def logged_in(connect: Connect, user: str) -> WireClient:
    wire = await connect()
    assert await log_in(wire, scram_client(user, "secret", MECHANISM), MECHANISM)
    return wire


# --- SCRAM replay ---------------------------------------------------------------------------------


async def authenticate(wire: WireClient, message: bytes) -> Any:  # noqa: ANN401 - a kio response
    return await wire.ask(AUTHENTICATE, 2, {"auth_bytes": message})


async def recorded_login(connect: Connect) -> tuple[bytes, bytes, WireClient]:
    """What a client sent that logged in, as somebody on the way may have seen it."""
    wire = await connect()
    who = scram_client("alice", "secret", MECHANISM)
    await wire.ask(HANDSHAKE, 1, {"mechanism": MECHANISM})
    first = who.first_message()
    who.process_server_first_message((await authenticate(wire, first)).auth_bytes)
    final = who.final_message()
    assert (await authenticate(wire, final)).error_code == 0
    return first, final, wire


async def test_f2_a_recorded_login_opens_nothing(connect: Connect) -> None:
    """The broker's part of the nonce is another one each time, and the proof is about it."""
    first, final, _ = await recorded_login(connect)
    wire = await connect()
    await wire.ask(HANDSHAKE, 1, {"mechanism": MECHANISM})
    challenge = (await authenticate(wire, first)).auth_bytes.decode()
    refused = await authenticate(wire, final)
    assert refused.error_code == errors_pb2.SASL_AUTHENTICATION_FAILED
    assert await wire.is_closed()

    wire = await connect()
    await wire.ask(HANDSHAKE, 1, {"mechanism": MECHANISM})
    challenge = (await authenticate(wire, first)).auth_bytes.decode()
    nonce = re.search("r=([^,]*)", challenge)
    assert nonce is not None
    forged = re.sub(rb"r=[^,]*", b"r=" + nonce[1].encode(), final)
    refused = await authenticate(wire, forged)
    assert refused.error_code == errors_pb2.SASL_AUTHENTICATION_FAILED
    assert await wire.is_closed()


async def test_f2_a_final_message_counts_once(connect: Connect) -> None:
    _, final, wire = await recorded_login(connect)
    refused = await authenticate(wire, final)
    assert refused.error_code == errors_pb2.ILLEGAL_SASL_STATE
    wire = await connect()
    await wire.ask(HANDSHAKE, 1, {"mechanism": MECHANISM})
    refused = await authenticate(wire, final)  # In place of the first message.
    assert refused.error_code == errors_pb2.SASL_AUTHENTICATION_FAILED
    assert await wire.is_closed()


# --- tokens of others -----------------------------------------------------------------------------


async def made_token(owner: WireClient, lifetime_ms: int = -1) -> Any:  # noqa: ANN401 - a kio response
    values = {
        "owner_principal_type": None,
        "owner_principal_name": None,
        "renewers": [{"principal_type": "User", "principal_name": "bob"}],
        "max_lifetime": lifetime_ms,
    }
    token = await owner.ask(CREATE, 3, values)
    assert token.error_code == errors_pb2.NONE
    return token


async def renew(who: WireClient, token: Any) -> Any:  # noqa: ANN401 - a kio response
    return await who.ask(RENEW, 2, {"hmac": token.hmac, "renew_period": HOUR_MS})


async def expire(who: WireClient, token: Any) -> int:  # noqa: ANN401 - a kio response
    answer = await who.ask(EXPIRE, 2, {"hmac": token.hmac, "expiry_time_period": -1})
    return int(answer.error_code)


async def by_token(connect: Connect, token: Any) -> WireClient | None:  # noqa: ANN401 - a kio response
    wire = await connect()
    client = TokenClient(token.token_id, base64.b64encode(token.hmac).decode(), MECHANISM)
    return wire if await log_in(wire, client, MECHANISM) else None


async def test_f1_a_token_is_renewed_and_ended_by_its_owner_and_renewers_alone(
    connect: Connect,
) -> None:
    alice, bob, mallory = [await logged_in(connect, user) for user in USERS]
    token = await made_token(alice)
    mismatch = errors_pb2.DELEGATION_TOKEN_OWNER_MISMATCH
    assert (await renew(mallory, token)).error_code == mismatch, "though it knows the secret"
    assert await expire(mallory, token) == mismatch
    wire = await by_token(connect, token)
    assert wire is not None
    not_allowed = errors_pb2.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (await renew(wire, token)).error_code == not_allowed, "nor by a token, its own or not"
    assert await expire(wire, token) == not_allowed
    assert (await renew(alice, token)).error_code == errors_pb2.NONE
    assert (await renew(bob, token)).error_code == errors_pb2.NONE
    assert await expire(bob, token) == errors_pb2.NONE
    assert await by_token(connect, token) is None


async def test_f1_a_token_ends_with_its_longest_life_for_everybody(connect: Connect) -> None:
    alice = await logged_in(connect, "alice")
    token = await made_token(alice, SHORT_MS)
    wire = await by_token(connect, token)
    assert wire is not None
    renewed = await renew(alice, token)
    assert renewed.expiry_timestamp == token.max_timestamp, "not beyond its longest life"

    async def is_over() -> bool:
        return await by_token(connect, token) is None

    await async_wait_until(is_over, "the token ends")
    gone = (errors_pb2.DELEGATION_TOKEN_EXPIRED, errors_pb2.DELEGATION_TOKEN_NOT_FOUND)
    assert (await renew(alice, token)).error_code in gone
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):  # And the open connection.
        await wire.ask(METADATA, 1, {"topics": []})


# --- names that command a terminal, a log or a scrape ---------------------------------------------

NASTY: Final = (
    'x\x1b[2J\x1b]0;owned\x07\n{"result":"forged"}\rq\x7f\x9b\u202e"} 1\nforged_metric 1\\'
)
OBEYED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Everything that a terminal obeys, but for line ends and tabs."""


async def spread(connect: Connect) -> None:
    """Use that name wherever a client may choose one."""
    wire = await logged_in(connect, ROOT)
    joining = {
        "group_id": NASTY, "session_timeout": 30_000, "rebalance_timeout": 1_000,
        "member_id": "", "protocol_type": "consumer",
        "protocols": [{"name": NASTY, "metadata": b""}],
    }  # fmt: skip

    async def coordinated() -> bool:
        answers = [await wire.ask(10, 2, {"key": NASTY, "key_type": kind}) for kind in (0, 1)]
        return not any(answer.error_code for answer in answers)

    await async_wait_until(coordinated, "coordinators")

    async def joined() -> bool:
        answer = await wire.ask(11, 2, joining)
        return bool(answer.error_code == errors_pb2.NONE)

    await async_wait_until(joined, "the group takes a member")

    async def began() -> bool:
        values = {"transactional_id": NASTY, "transaction_timeout": 60_000}
        return bool((await wire.ask(22, 1, values)).error_code == errors_pb2.NONE)

    await async_wait_until(began, "the transactional id is taken")
    quota = {
        "entity": [{"entity_type": "client-id", "entity_name": NASTY}],
        "ops": [{"key": "producer_byte_rate", "value": 1_000.0, "remove": False}],
    }
    altered = await wire.ask(49, 1, {"entries": [quota], "validate_only": False})
    assert altered.entries[0].error_code == errors_pb2.NONE
    entry = {
        "resource_type": 2, "resource_name": NASTY, "resource_pattern_type": 3,
        "principal": f"User:{NASTY}", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip
    (created,) = (await wire.ask(30, 1, {"creations": [entry]})).results
    assert created.error_code == errors_pb2.NONE
    for name in (NASTY, "orders"):
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [],
                 "configs": [{"name": NASTY, "value": NASTY}]}  # fmt: skip
        await wire.ask(19, 4, {"topics": [topic], "timeout": 5_000, "validate_only": False})
    stranger = await connect()
    assert not await log_in_fails(stranger)


async def log_in_fails(wire: WireClient) -> bool:
    return await log_in(wire, scram_client(NASTY.replace(",", ""), "wrong", MECHANISM), MECHANISM)


LISTINGS: Final = (
    ("groups", "list"),
    ("groups", "describe", "--group", NASTY),
    ("transactions", "list"),
    ("configs", "--describe", "--entity-type", "clients"),
    ("topics", "list"),
    ("topics", "describe"),
    ("acls", "--list"),
    ("users", "list"),
    ("status",),
    ("reassign", "--list"),
)


@pytest.fixture(scope="module")
def spread_names(cluster: RunningCluster) -> None:
    async def spreading() -> None:
        async with connections(cluster) as opened:
            await spread(opened)

    asyncio.run(spreading())


@pytest.mark.usefixtures("spread_names")
def test_names_command_no_terminal(cluster: RunningCluster, tmp_path: Path) -> None:
    properties = tmp_path / "root.properties"
    properties.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={MECHANISM}\n"
        f"sasl.username={ROOT}\nsasl.password=secret\n"
    )
    at = ("--data", str(cluster.folder), "--command-config", str(properties))
    seen = ""
    for words in LISTINGS:
        said = quorate(*words, *at)
        assert not OBEYED.search(said), words
        assert "forged_metric" not in [line.split(" ")[0] for line in said.splitlines()], words
        seen += said
    assert seen.count("\\x1b[2J") >= 3, "groups, transactions and quotas show it, escaped"
    said = quorate_error("topics", "delete", "--topic", NASTY, *at)
    assert not OBEYED.search(said)
    assert len(said.splitlines()) == 1
    for words in (("groups", "list"), ("transactions", "list")):
        document = quorate(*words, "--json", *at)
        assert not OBEYED.search(document)
        assert NASTY in list(_strings(json.loads(document))), words


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
    elif isinstance(value, str):
        yield value


@pytest.mark.usefixtures("spread_names")
def test_names_begin_no_line_of_a_log(cluster: RunningCluster) -> None:
    for log in (cluster.folder / "logs").glob("*.log"):
        text = log.read_text()
        assert not OBEYED.search(text), log.name
        assert not any(line.startswith(("{", "forged")) for line in text.splitlines()), log.name
    audit = (cluster.folder / "broker-1" / "audit.log").read_text()
    assert not OBEYED.search(audit)
    entries = [json.loads(line) for line in audit.splitlines()]
    assert all("timestamp" in entry for entry in entries), "a line of its own for each change"
    assert any(NASTY in value for entry in entries for value in _strings(entry))


@pytest.mark.usefixtures("spread_names")
def test_names_make_no_sample_of_metrics(cluster: RunningCluster) -> None:
    config = (cluster.folder / "config" / "broker-1.toml").read_text()
    address = re.search(r'"metrics\.listener" = "([^"]+)"', config)
    assert address is not None
    with urllib.request.urlopen(f"http://{address[1]}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert not OBEYED.search(text)
    assert not any(line.startswith("forged_metric") for line in text.splitlines())
