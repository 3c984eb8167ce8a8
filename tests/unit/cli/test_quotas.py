"""Quotas on the command line: Kafka's flags and words, and no waiting."""

import json
from collections.abc import Iterator

import pytest

from quorate.cli.main import run
from quorate.client import admin
from quorate.metadata_log.client_quotas import ClientQuotaEntity
from quorate_proto.v1 import admin_pb2
from tests.support.admin_cluster import FakeCluster, serving

USER1 = ("--entity-type", "users", "--entity-name", "user1")
CLIENT_A = ("--entity-type", "clients", "--entity-name", "clientA")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Whatever bootstrap server is named leads there."""
    with serving(FakeCluster(1, controller_id=1)) as cluster:
        monkeypatch.setattr(admin, "_way_in", lambda *_: lambda: cluster.addresses)
        yield cluster


def quorate(*arguments: str) -> int:
    command, *rest = arguments
    return run([*command.split(), "--bootstrap-server", "127.0.0.1:1", *rest])


@pytest.mark.parametrize("key", ["controller_mutations_rate", "controller_mutation_rate"])
def test_q12_a_quota_is_set_in_the_documents_words(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    assert quorate("configs", "--alter", "--add-config", f"{key}=10", *USER1, *CLIENT_A) == 0
    assert capsys.readouterr().out == (
        "Updated config for entity: user-principal 'user1', client-id 'clientA'.\n"
    )
    (request,) = cluster.brokers[0].asked
    assert isinstance(request, admin_pb2.AlterClientQuotasRequest)
    (one,) = request.alterations
    assert [(part.entity_type, part.name) for part in one.entity] == [
        ("user", "user1"),
        ("client-id", "clientA"),
    ]
    assert [(change.key, change.value) for change in one.changes] == [(key, 10)]


def test_q12_quotas_are_described_in_the_documents_words(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.quotas[ClientQuotaEntity("user1", "clientA")] = {
        "controller_mutation_rate": 10.0,
        "producer_byte_rate": 1_048_576.0,
    }
    cluster.quotas[ClientQuotaEntity("user1")] = {"request_percentage": 12.5}
    cluster.quotas[ClientQuotaEntity(client_id="")] = {"request_percentage": 50.0}
    assert quorate("configs", "--describe", *USER1, *CLIENT_A) == 0
    assert capsys.readouterr().out == (
        "Configs for user-principal 'user1', client-id 'clientA' are "
        "controller_mutations_rate=10,producer_byte_rate=1048576\n"
    )
    assert quorate("configs", "--describe", "--entity-type", "users") == 0
    assert capsys.readouterr().out == (
        "Configs for user-principal 'user1' are request_percentage=12.5\n"
    )
    assert quorate("configs", "--describe", "--entity-type", "clients", "--entity-default") == 0
    assert capsys.readouterr().out == (
        "Configs for the default client-id are request_percentage=50\n"
    )
    assert quorate("configs", "--describe", "--json", *CLIENT_A, *USER1) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "entity": {"user": "user1", "client-id": "clientA"},
            "quotas": {"controller_mutation_rate": 10.0, "producer_byte_rate": 1_048_576.0},
        }
    ]


def test_q12_quotas_are_removed_and_defaults_named(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    deleting = ("--delete-config", "producer_byte_rate", "--entity-type", "users")
    assert quorate("configs", "--alter", *deleting, "--entity-default") == 0
    assert capsys.readouterr().out == ("Updated config for entity: the default user-principal.\n")
    (request,) = cluster.brokers[0].asked
    assert isinstance(request, admin_pb2.AlterClientQuotasRequest)
    (one,) = request.alterations
    assert not one.entity[0].HasField("name")
    assert [(change.key, change.HasField("value")) for change in one.changes] == [
        ("producer_byte_rate", False)
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (("--add-config", "a=b", *USER1), 2, "a=b: must be a number"),
        (("--add-config", "a=1", "--entity-type", "users"), 2, "which of the users?"),
        (("--add-config", "bad=1", *USER1), 1, "INVALID_REQUEST: bad: no"),
    ],
)
def test_q12_what_cannot_be_done_is_said_in_a_line(
    cluster: FakeCluster,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    named: str,
) -> None:
    assert quorate("configs", "--alter", *arguments) == code
    assert named in capsys.readouterr().err


def test_q10_the_topics_command_does_not_wait_for_the_quota(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.over_quota.extend([None] * 2)
    assert quorate("topics create", "--topic", "t") == 1
    assert "THROTTLING_QUOTA_EXCEEDED: over" in capsys.readouterr().err
    assert len(cluster.over_quota) == 1


def test_q10_the_topics_command_does_not_wait_to_delete_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def delete(self: admin.AdminClient, names: list[str], options: object) -> list[object]:
        asked.append(options)
        return []

    monkeypatch.setattr(admin.AdminClient, "delete_topics", delete)
    assert quorate("topics delete", "--topic", "t") == 0
    assert [getattr(one, "retry_on_quota_violation", None) for one in asked] == [False]


def test_q9_metrics_are_shown(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert quorate("status", "--metrics") == 0
    assert capsys.readouterr().out == "broker 1    ControllerMutation tokens{user=anna} -7.5\n"
    assert quorate("status", "--metrics", "--json") == 0
    (metric,) = json.loads(capsys.readouterr().out)
    assert (metric["broker_id"], metric["value"]) == (1, -7.5)


def test_kip612_addresses_have_quotas_and_are_described(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ("--entity-type", "ips", "--entity-name", "10.0.0.9")
    assert quorate("configs", "--alter", "--add-config", "connection_creation_rate=5", *one) == 0
    assert capsys.readouterr().out == "Updated config for entity: ip '10.0.0.9'.\n"
    (request,) = cluster.brokers[0].asked
    assert isinstance(request, admin_pb2.AlterClientQuotasRequest)
    (part,) = request.alterations[0].entity
    assert (part.entity_type, part.name) == ("ip", "10.0.0.9")
    cluster.quotas[ClientQuotaEntity(ip="10.0.0.9")] = {"connection_creation_rate": 5.0}
    cluster.quotas[ClientQuotaEntity(ip="")] = {"connection_creation_rate": 50.0}
    assert quorate("configs", "--describe", "--entity-type", "ips", "--entity-default") == 0
    assert capsys.readouterr().out == (
        "Configs for the default ip are connection_creation_rate=50\n"
    )
