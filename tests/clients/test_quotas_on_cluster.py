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
from quorate.client.admin import AdminClient
from quorate.client.results import (
    CreateTopicsOptions,
    NewPartitions,
    NewTopic,
    PartitionName,
    QuotaAlteration,
    QuotaEntity,
    QuotaFilter,
)
from quorate.cluster.client_options import client_options_of
from quorate.common.configuration import parse_endpoint
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_clients import PATIENCE_S
from tests.support.kafka_wire import WireClient, read_answer, request_frame, sized
from tests.support.waiting import async_wait_until, let_time_pass, wait_until

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


def creating(name: str, partitions: int) -> dict[str, Any]:
    """A CreateTopics request of version 7."""
    wanted = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    return {"topics": [wanted], "timeout": 10_000, "validate_only": False}


async def test_q4_q5_f2_whichever_broker_is_asked_says_so_and_mutes(
    cluster: RunningCluster,
) -> None:
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

    def described() -> str:
        assert run([*where, "--describe"]) == 0
        return capsys.readouterr().out

    # Another broker may answer, which hears of the change a moment later.
    assert wait_until(described, "the quota to be shown") == (
        "Configs for user-principal 'user1', client-id 'clientA' are controller_mutations_rate=10\n"
    )
    assert run(["status", "--metrics", "--bootstrap-server", cluster.bootstrap]) == 0
    assert "ControllerEventManager EventQueueSize" in capsys.readouterr().out


# --- the rules of the bucket, by what real clients get --------------------------------------------

SLOW = 0.01
"""Partitions per second: what is used does not come back while a test runs."""


def limit(cluster: RunningCluster, entity: QuotaEntity, **values: float | None) -> None:
    with cluster.admin() as admin:
        admin.alter_client_quotas([QuotaAlteration(entity, values)])[0].raise_for_error()


def impatient(cluster: RunningCluster, client_id: str) -> AdminClient:
    """An admin client that is told at once what is over its quota."""
    return AdminClient(
        cluster.bootstrap,
        client_id=client_id,
        retry_on_quota_violation=False,
        options=client_options_of(cluster.folder),
    )


def topic(name: str, partitions: int) -> NewTopic:
    return NewTopic(name=name, num_partitions=partitions, replication_factor=1)


def figure(cluster: RunningCluster, name: str, **tags: str) -> float | None:
    """What the controller tells of one client."""
    whole = {"user": "", "client-id": "", **{key.replace("_", "-"): v for key, v in tags.items()}}
    with cluster.admin() as admin:
        found = [
            one.value
            for one in admin.metrics()
            if (one.group, one.name) == ("ControllerMutation", name) and dict(one.tags) == whole
        ]
    return found[0] if found else None


def debt(cluster: RunningCluster, **tags: str) -> int:
    tokens = figure(cluster, "tokens", **tags)
    return 0 if tokens is None else round(-tokens)


def test_q1_a_mutation_costs_the_partitions_it_creates_adds_or_deletes(
    cluster: RunningCluster,
) -> None:
    for client_id in ("creates", "adds", "deletes", "removes"):
        limit(cluster, QuotaEntity(client_id=client_id), controller_mutation_rate=SLOW)
    with impatient(cluster, "prepares") as admin:
        for name, partitions in (("to-grow", 3), ("to-delete", 25), ("to-shrink", 9)):
            limit(cluster, QuotaEntity(client_id="prepares"), controller_mutation_rate=10_000)
            assert admin.create_topics([topic(name, partitions)])[0].ok
    with impatient(cluster, "creates") as admin:
        assert admin.create_topics([topic("costs-40", 40)])[0].ok
    with impatient(cluster, "adds") as admin:
        assert admin.create_partitions([NewPartitions(name="to-grow", count=33)])[0].ok
    with impatient(cluster, "deletes") as admin:
        assert admin.delete_topics(["to-delete"])[0].ok
    with impatient(cluster, "removes") as admin:
        highest = [PartitionName(topic="to-shrink", partition=number) for number in (6, 7, 8)]
        assert admin.remove_partitions(highest)[0].ok
    costs = [debt(cluster, client_id=one) for one in ("creates", "adds", "deletes", "removes")]
    assert costs == [40, 30, 25, 3]


def test_q2_q3_q8_a_burst_goes_through_whole_and_is_waited_for_at_the_rate(
    cluster: RunningCluster,
) -> None:
    """KIP-599's example: 60 beyond the burst at 5 a second are 12 seconds. One window: B = 5."""
    limit(cluster, QuotaEntity(client_id="burst"), controller_mutation_rate=5)
    with impatient(cluster, "burst") as admin:
        assert admin.create_topics([topic("burst-65", 65)])[0].ok
        (refused,) = admin.create_topics([topic("burst-1", 1)])
        assert refused.is_over_quota
        assert 4_000 < refused.throttle_time_ms <= 12_000
    limit(cluster, QuotaEntity(client_id="soon"), controller_mutation_rate=20)
    with impatient(cluster, "soon") as admin:
        assert admin.create_topics([topic("soon-40", 40)])[0].ok
        (refused,) = admin.create_topics([topic("soon-1", 1)])
        let_time_pass(refused.throttle_time_ms / 1_000 + 0.01, "the debt is paid")
        assert admin.create_topics([topic("soon-30", 30)])[0].ok


def test_q6_what_is_only_validated_costs_nothing(cluster: RunningCluster) -> None:
    limit(cluster, QuotaEntity(client_id="dry"), controller_mutation_rate=SLOW)
    with impatient(cluster, "dry") as admin:
        for _ in range(3):
            options = CreateTopicsOptions(validate_only=True)
            assert admin.create_topics([topic("dry", 1_000)], options)[0].ok
        assert debt(cluster, client_id="dry") == 0
        assert admin.create_topics([topic("dry", 5)])[0].ok
    assert debt(cluster, client_id="dry") == 5


def test_q7_the_most_particular_quota_holds_under_either_spelling(cluster: RunningCluster) -> None:
    pair = QuotaEntity("ANONYMOUS", "pair")
    limit(cluster, QuotaEntity(client_id="pair"), controller_mutations_rate=SLOW)
    limit(cluster, pair, controller_mutation_rate=10_000)
    with impatient(cluster, "pair") as admin:
        assert admin.create_topics([topic("pair-1", 20)])[0].ok
        assert admin.create_topics([topic("pair-2", 20)])[0].ok
        limit(cluster, pair, controller_mutations_rate=None)
        assert admin.create_topics([topic("pair-3", 20)])[0].ok, "its bucket is full"
        assert admin.create_topics([topic("pair-4", 1)])[0].is_over_quota
    assert debt(cluster, client_id="pair") == 20
    with cluster.admin() as admin:
        (entry,) = admin.describe_client_quotas([QuotaFilter("client-id", "pair")], strict=True)
    assert entry.values == {"controller_mutation_rate": SLOW}


def test_q9_figures_tell_rate_tokens_and_the_throttle_time_of_the_last_window(
    cluster: RunningCluster,
) -> None:
    limit(cluster, QuotaEntity(client_id="figures"), controller_mutation_rate=1)
    with impatient(cluster, "figures") as admin:
        assert admin.create_topics([topic("figures", 41)])[0].ok
        (refused,) = admin.create_topics([topic("no", 1)])
        assert refused.throttle_time_ms > 20_000
    assert (figure(cluster, "tokens", client_id="figures") or 0) < 0
    wait_until(
        lambda: figure(cluster, "throttle-time", client_id="figures") == 0,
        "nobody to be throttled in the last window of a second",
    )
    assert figure(cluster, "rate", client_id="figures") is not None
    with cluster.admin() as admin:
        assert any(one.name == "EventQueueSize" for one in admin.metrics())


async def test_q11_beside_a_request_quota_the_more_constraining_wins(
    cluster: RunningCluster,
) -> None:
    requests = {"request_percentage": 0.001}
    limit(cluster, QuotaEntity(client_id="requests"), **requests)
    limit(cluster, QuotaEntity(client_id="both"), controller_mutation_rate=5, **requests)
    by_requests_s = await throttled_s(cluster, "requests", 60)
    assert 0 < by_requests_s <= 1, "no longer than a window"
    assert await throttled_s(cluster, "both", 60) == by_requests_s, "the bucket was not in debt"
    assert 2 < await throttled_s(cluster, "both", 1) <= 11, "it owes 55 at 5 a second"


async def throttled_s(cluster: RunningCluster, client_id: str, partitions: int) -> float:
    """What a CreateTopics request of that client is told to wait."""
    at = parse_endpoint("listeners", cluster.broker_address(cluster.broker_ids[0]))
    client = await WireClient.connect(at)
    values = creating(f"q11-{client_id}-{partitions}", partitions)
    client.send_bytes(sized(request_frame(19, 7, values, client_id=client_id)))
    _, answer = read_answer(19, 7, await client.answer())
    await client.close()
    return float(answer.throttle_time.total_seconds())


async def test_q13_topics_that_come_by_themselves_are_charged_to_the_clusters_own_user(
    cluster: RunningCluster,
) -> None:
    own = QuotaEntity("quorate-cluster-admin")
    limit(cluster, own, controller_mutation_rate=SLOW)
    at = parse_endpoint("listeners", cluster.broker_address(cluster.broker_ids[0]))
    client = await WireClient.connect(at)
    for name in ("by-itself-1", "by-itself-2"):
        await client.ask(3, 4, {"topics": [{"name": name}], "allow_auto_topic_creation": True})
    await client.close()
    await async_wait_until(lambda: "by-itself-1" in topics_of(cluster), "the first one")
    assert debt(cluster, user="quorate-cluster-admin") >= 1
    assert "by-itself-2" not in topics_of(cluster), "over the quota of that user"
    limit(cluster, own, controller_mutation_rate=None)
