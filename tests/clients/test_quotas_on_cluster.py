"""Scenario 4 with unmodified clients against three real brokers: old ones wait, new ones are told.

The burst is one second's worth, so that waiting for it takes seconds.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.cimpl import NewTopic as ConfluentTopic

from quorate.cli.main import run
from quorate.client import ThrottlingQuotaExceededError
from quorate.client.results import CreateTopicsOptions, NewTopic, QuotaAlteration, QuotaEntity
from quorate.common.configuration import parse_endpoint
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_clients import PATIENCE_S
from tests.support.kafka_wire import WireClient
from tests.support.waiting import let_time_pass

pytestmark = [
    pytest.mark.clients,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

RATE = 10
OVER = errors_pb2.THROTTLING_QUOTA_EXCEEDED


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    """Every client id may have 10 partitions a second created, 10 at once."""
    running = module_quorate_cluster(brokers=3, config={"controller.quota.window.num": 1})
    every_client = QuotaEntity(client_id="")
    with running.admin() as admin:
        alteration = QuotaAlteration(every_client, {"controller_mutations_rate": RATE})
        admin.alter_client_quotas([alteration])[0].raise_for_error()
    return running


def topics_of(cluster: RunningCluster) -> set[str]:
    with cluster.admin() as admin:
        return set(admin.list_topics())


def test_s4_q4_q5_an_old_client_gets_both_topics_and_is_muted(cluster: RunningCluster) -> None:
    admin = ConfluentAdmin({"bootstrap.servers": cluster.bootstrap, "client.id": "old"})
    wanted = [ConfluentTopic(name, 20, 1) for name in ("old-a", "old-b")]
    for future in admin.create_topics(wanted, request_timeout=PATIENCE_S).values():
        future.result(PATIENCE_S)
    assert {"old-a", "old-b"} <= topics_of(cluster)
    began_s = time.monotonic()
    last = admin.create_topics([ConfluentTopic("old-c", 1, 1)], request_timeout=PATIENCE_S)
    last["old-c"].result(PATIENCE_S)
    assert time.monotonic() - began_s > 1, "it owes 30 partitions: 3 seconds"


@pytest.fixture
def new_client(cluster: RunningCluster, request: pytest.FixtureRequest) -> Iterator[Any]:
    """kafka-python, with a client id of its own."""
    import kafka

    name = request.node.name[-40:]
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap, client_id=name)
    yield admin
    admin.close()


def codes(topics: Any) -> list[int]:  # noqa: ANN401 - untyped
    return [one["error_code"] for one in topics]


def test_s4_q4_a_new_client_gets_one_of_two_topics_created_and_deleted(
    cluster: RunningCluster,
    new_client: Any,  # noqa: ANN401 - untyped
) -> None:
    wanted = {name: {"num_partitions": 20, "replication_factor": 1} for name in ("new-a", "new-b")}
    created = new_client.create_topics(wanted, raise_errors=False)
    assert codes(created["topics"]) == [errors_pb2.NONE, OVER]
    assert "controller_mutation_rate" in created["topics"][1]["error_message"]
    assert "new-b" not in topics_of(cluster)
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(name="new-c", num_partitions=20, replication_factor=1)])
    let_time_pass(2.1, "the rate of creations comes down to its quota")
    deleted = new_client.delete_topics(["new-a", "new-c"], raise_errors=False)
    assert codes(deleted["topics"]) == [errors_pb2.NONE, OVER]
    assert "new-c" in topics_of(cluster)


def test_s4_q4_a_new_client_grows_one_of_two_topics_and_raises_its_error(
    cluster: RunningCluster,
    new_client: Any,  # noqa: ANN401 - untyped
) -> None:
    from kafka.errors import ThrottlingQuotaExceededError as Refused

    new_client.create_topics({f"grow-{name}": {"num_partitions": 1} for name in "ab"})
    with pytest.raises(Refused):
        new_client.create_partitions({"grow-a": 21, "grow-b": 21})
    with cluster.admin() as admin:
        found = admin.describe_topics(["grow-a", "grow-b"])
    assert sorted(len(topic.partitions) for topic in found) == [1, 21]


async def test_q4_q5_f2_whichever_broker_is_asked_says_so_and_mutes(
    cluster: RunningCluster,
) -> None:
    def creating(name: str, partitions: int) -> dict[str, Any]:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        return {"topics": [topic], "timeout": 10_000, "validate_only": False}

    clients = []
    for broker_id in cluster.broker_ids:
        address = parse_endpoint("listeners", cluster.broker_address(broker_id))
        clients.append(await WireClient.connect(address))
    first = await clients[0].ask(19, 7, creating("wire", 30))
    assert first.topics[0].error_code == errors_pb2.NONE
    await clients[0].close()
    address = parse_endpoint("listeners", cluster.broker_address(cluster.broker_ids[0]))
    clients[0] = await WireClient.connect(address)
    answers = await asyncio.gather(
        *(client.ask(19, 7, creating(f"w{n}", 1)) for n, client in enumerate(clients))
    )
    began_s = time.monotonic()
    assert [answer.topics[0].error_code for answer in answers] == [OVER] * 3
    throttles_s = [answer.throttle_time.total_seconds() for answer in answers]
    assert all(0 < one <= 2 for one in throttles_s)
    for client in clients:
        await client.ask(18, 0, {})
        await client.close()
    assert time.monotonic() - began_s > min(throttles_s) - 0.2


def test_q10_the_admin_client_waits_unless_told_not_to(cluster: RunningCluster) -> None:
    wanted = [
        NewTopic(name=f"waits-{name}", num_partitions=20, replication_factor=1) for name in "ab"
    ]
    with cluster.admin() as admin:
        assert all(result.ok for result in admin.create_topics(wanted))
        (refused,) = admin.create_topics(
            [NewTopic(name="impatient", num_partitions=1, replication_factor=1)],
            CreateTopicsOptions(retry_on_quota_violation=False),
        )
    with pytest.raises(ThrottlingQuotaExceededError) as raised:
        refused.raise_for_error()
    assert raised.value.throttle_time_ms > 0


def test_q12_quotas_are_set_and_shown_by_command(
    cluster: RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    whose = "--entity-type users --entity-name user1 --entity-type clients --entity-name clientA"
    where = ["configs", "--bootstrap-server", cluster.bootstrap, *whose.split()]
    assert run([*where, "--alter", "--add-config", "controller_mutations_rate=10"]) == 0
    assert capsys.readouterr().out == (
        "Updated config for entity: user-principal 'user1', client-id 'clientA'.\n"
    )
    assert run([*where, "--describe"]) == 0
    assert capsys.readouterr().out == (
        "Configs for user-principal 'user1', client-id 'clientA' are controller_mutations_rate=10\n"
    )
    assert run(["status", "--metrics", "--bootstrap-server", cluster.bootstrap]) == 0
    assert "ControllerMutation events-queued" in capsys.readouterr().out
