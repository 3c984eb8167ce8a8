"""Changes of several users through every broker: each by its own name, whoever passed it on (F5).

Through the death of the controller, too: what was acknowledged is there once and whole (F3).
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.cli.main import run
from quorate.client.results import NewTopic, ScramUpsertion
from quorate.common.types import Endpoint
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from quorate_proto.v1 import errors_pb2
from tests.support.forwarded_changes import (
    CREATE_ACLS,
    INCREMENTAL,
    QUOTAS,
    audited,
    endpoint,
    error_codes,
    quota,
    reader,
    setting,
    written,
)
from tests.support.kafka_wire import Values, WireClient, read_answer, request_frame, sized
from tests.support.sasl import log_in, scram_client
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

USERS = ("ann", "bob", "carl")
POWERLESS = "dan"
MECHANISM = "SCRAM-SHA-256"
WORKERS = 6
BROKEN = -1
"""Instead of an error code: the connection broke before the answer."""


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    """It asks for users, and has some that may change everything here, and one that may nothing."""
    running = module_quorate_cluster(
        brokers=3,
        config={
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
            "grpc.security.protocol": "SSL",
            "grpc.ssl.client.auth": "required",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:CN=admin",
        },
    )
    allow(running, "AlterConfigs", "--topic", "t", "--resource-pattern-type", "prefixed")
    allow(running, "AlterConfigs", "--cluster")
    allow(running, "Alter", "--cluster")
    with running.admin() as admin:
        users = [
            ScramUpsertion.of_password(user, MECHANISM, f"{user}s secret")
            for user in (*USERS, POWERLESS)
        ]
        topics = [NewTopic(name=f"t{number}", assignments=[(1, 2, 3)]) for number in range(WORKERS)]
        for result in (*admin.alter_user_scram_credentials(users), *admin.create_topics(topics)):
            result.raise_for_error()
    wait_until_known(running, f"t{WORKERS - 1}", 1)  # And the users, which are before it.
    return running


def allow(cluster: RunningCluster, operation: str, *resource: str) -> None:
    principals = [word for user in USERS for word in ("--allow-principal", f"User:{user}")]
    words = ["acls", "--add", *principals, "--operation", operation, *resource]
    assert run([*words, "--data", str(cluster.folder)]) == 0


async def logged_in(user: str, at: Endpoint) -> WireClient:
    wire = await WireClient.connect(at)
    assert await log_in(wire, scram_client(user, f"{user}s secret", MECHANISM), MECHANISM)
    return wire


def user_of(number: int) -> str:
    """Workers 0 and 3 are at the same broker, as different users; so are 1 and 4, 2 and 5."""
    worker = number % WORKERS
    return USERS[(worker + worker // len(USERS)) % len(USERS)]


def change(number: int, name: str) -> tuple[int, int, Values]:
    """Of two keys each, but for the entries, which are changes of their own in Kafka."""
    match number // WORKERS % 3:
        case 0:
            values = {
                "max_message_bytes": str(1_000_000 + number),
                "follower_replication_throttled_replicas": f"{number}:1",
            }
            return INCREMENTAL, 1, setting(f"t{number % WORKERS}", **values)
        case 1:
            rate = float(number + 1)
            return QUOTAS, 1, quota(name, producer_byte_rate=rate, request_percentage=rate)
        case _:
            return CREATE_ACLS, 3, {"creations": [reader(f"User:{name}", "t0")]}


def whole(api: str, name: str) -> frozenset[str]:
    """What the operation of such a change sets."""
    return {
        "IncrementalAlterConfigs": frozenset(
            {"max.message.bytes", "follower.replication.throttled.replicas"}
        ),
        "AlterClientQuotas": frozenset({"producer_byte_rate", "request_percentage"}),
        "CreateAcls": frozenset({f"User:{name}"}),
    }[api]


async def ask(client: WireClient, name: str, key: int, version: int, values: Values) -> int:
    """The error code of a change of one thing, asked for by the client id ``name``."""
    client.send_bytes(sized(request_frame(key, version, values, client_id=name)))
    _, answer = read_answer(key, version, await client.answer())
    (code,) = error_codes(answer)
    return code


@dataclass(frozen=True)
class Stream:
    """``count`` changes, by client ids of their own; ``codes``: what became of them, by number."""

    ports: list[Endpoint]
    count: int
    prefix: str
    codes: dict[int, int]

    async def run(self, half_way: Callable[[], None]) -> None:
        """``half_way`` is called once, at some moment of it. It may kill one broker."""
        moment = random.randrange(self.count // 4, self.count // 2)
        clients = [await self._client(worker, worker) for worker in range(WORKERS)]

        async def work(worker: int) -> None:
            client = clients[worker]
            for number in range(worker, self.count, WORKERS):
                name = f"{self.prefix}{number}"
                try:
                    self.codes[number] = await ask(client, name, *change(number, name))
                except (ConnectionError, asyncio.IncompleteReadError):
                    self.codes[number] = BROKEN
                    await client.close()
                    client = await self._client(worker, worker + 1)
                if len(self.codes) == moment:
                    await asyncio.to_thread(half_way)
            await client.close()

        await asyncio.gather(*map(work, range(WORKERS)))

    async def _client(self, worker: int, port: int) -> WireClient:
        return await logged_in(user_of(worker), self.ports[port % len(self.ports)])

    def names(self, code: int) -> set[str]:
        """Of changes with that error code."""
        return {f"{self.prefix}{number}" for number, one in self.codes.items() if one == code}

    def principal(self, name: str) -> str:
        """Of who asked for it."""
        return f"User:{user_of(int(name.removeprefix(self.prefix)))}"


def check_stream(cluster: RunningCluster, count: int, prefix: str) -> None:
    """The controller is killed during a stream; what was acknowledged is there once and whole."""
    killed = cluster.controller_id()
    ports = [endpoint(cluster, broker_id) for broker_id in cluster.broker_ids]
    stream = Stream(ports, count, prefix, {})
    asyncio.run(stream.run(lambda: cluster.kill_broker(killed)))
    cluster.restart_broker(killed)
    wait_until_whole(cluster)
    acknowledged, broken = stream.names(errors_pb2.NONE), stream.names(BROKEN)
    assert len(acknowledged) + len(broken) == count, "others were retried at the next controller"
    assert len(broken) <= WORKERS / len(ports), "only who was at the killed broker"
    log = written(cluster, prefix)
    for name, operations in log.items():
        (one,) = operations
        assert one.principal == stream.principal(name)
        assert one.values == whole(one.api, name)
    assert acknowledged <= set(log) <= acknowledged | broken
    check_audit(cluster, stream, {one for one in cluster.broker_ids if one != killed})


def check_audit(cluster: RunningCluster, stream: Stream, forwarding: set[int]) -> None:
    """Each acknowledged change is in somebody's audit log, by the name of who asked.

    ``forwarding``: brokers that passed on changes of two users each.
    """
    principals: dict[str, set[str]] = defaultdict(set)
    passed_on: dict[int, set[str]] = defaultdict(set)
    for entry in audited(cluster, stream.prefix):
        assert entry["result"] == "NONE"
        assert entry["controller_epoch"] > 0
        principals[entry["client_id"]].add(entry["principal"])
        passed_on[entry["forwarded_by"]].add(entry["principal"])
    acknowledged = stream.names(errors_pb2.NONE)
    assert acknowledged <= set(principals) <= acknowledged | stream.names(BROKEN)
    assert principals == {name: {stream.principal(name)} for name in principals}
    assert set(passed_on) <= {*cluster.broker_ids, -1}
    assert all(len(passed_on[broker_id]) >= 2 for broker_id in forwarding)


def test_f3_f5_a_controller_dies_amid_changes_and_none_is_lost_doubled_or_halved(
    cluster: RunningCluster,
) -> None:
    check_stream(cluster, 120, "short-")


@pytest.mark.slow
def test_f3_f5_a_thousand_changes_and_the_controller_dies(cluster: RunningCluster) -> None:
    for turn in range(3):
        check_stream(cluster, 1_000, f"long{turn}-")


def test_f5_who_lacks_the_right_is_refused_by_its_own_name_through_another_broker(
    cluster: RunningCluster,
) -> None:
    """While who has it changes the same things through that broker."""
    controller = cluster.controller_id()
    forwarding = next(one for one in cluster.broker_ids if one != controller)
    first = 3_000 * WORKERS  # Sets what no stream does: to repeat a value is no change.
    changes = [first, first + WORKERS, first + 2 * WORKERS]

    async def codes() -> dict[str, list[int]]:
        clients = {
            user: await logged_in(user, endpoint(cluster, forwarding))
            for user in (POWERLESS, USERS[0])
        }
        found: dict[str, list[int]] = defaultdict(list)
        for number in changes:
            for user, client in clients.items():
                name = f"by-{user}-{number}"
                found[user].append(await ask(client, name, *change(number, name)))
        for client in clients.values():
            await client.close()
        return found

    refusals = [
        errors_pb2.TOPIC_AUTHORIZATION_FAILED,
        errors_pb2.CLUSTER_AUTHORIZATION_FAILED,
        errors_pb2.CLUSTER_AUTHORIZATION_FAILED,
    ]
    expected = {POWERLESS: refusals, USERS[0]: [errors_pb2.NONE] * 3}
    assert asyncio.run(codes()) == expected
    log = written(cluster, "by-")
    assert set(log) == {f"by-{USERS[0]}-{number}" for number in changes}
    audit_log: dict[str, tuple[Any, ...]] = {
        entry["client_id"]: (entry["principal"], entry["result"], entry["forwarded_by"])
        for entry in audited(cluster, "by-")
    }
    assert audit_log == {
        f"by-{user}-{number}": (f"User:{user}", errors_pb2.ErrorCode.Name(code), forwarding)
        for user, answers in expected.items()
        for number, code in zip(changes, answers, strict=True)
    }
