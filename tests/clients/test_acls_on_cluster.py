"""Unmodified clients say who may do what, and it is obeyed."""

import contextlib
import json
import warnings
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.cli.main import run
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from tests.support.kafka_clients import PATIENCE_S, Confluent
from tests.support.waiting import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.admin
    import kafka.errors

pytestmark = [
    pytest.mark.clients,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

WHO = "User:ANONYMOUS"


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    """What no entry is about is everybody's: so a client that says nothing of itself can begin."""
    return module_quorate_cluster(
        brokers=2,
        config={
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "allow.everyone.if.no.acl.found": True,
        },
    )


@pytest.fixture
def follower(cluster: RunningCluster) -> str:
    """A broker that is not the controller: changes go through it."""
    with cluster.admin() as admin:
        controller = admin.cluster_status().controller_id
    return cluster.broker_address(next(one for one in cluster.broker_ids if one != controller))


def can_produce(bootstrap: str, topic: str) -> bool:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": int(PATIENCE_S * 1000)}
    )
    errors: list[confluent_kafka.KafkaError | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    (error,) = errors
    if error is None:
        return True
    assert error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED, error
    return False


def wait_until_it_may(topic: str, bootstrap: str, *, allowed: bool) -> None:
    """Brokers learn of entries by watch: soon, not at once."""
    wait_until(
        lambda: can_produce(bootstrap, topic) is allowed,
        f"records of {topic} to be {'allowed' if allowed else 'denied'}",
        timeout_s=PATIENCE_S,
    )


def binding(topic: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, WHO, "*", operation, permission
    )


def test_confluent_kafka_denies_lists_and_allows_again(
    cluster: RunningCluster, follower: str
) -> None:
    Confluent(cluster.bootstrap).create("guarded", 1, replication_factor=1)
    assert can_produce(cluster.bootstrap, "guarded")
    admin = AdminClient({"bootstrap.servers": follower})
    denial = binding("guarded", AclOperation.WRITE, AclPermissionType.DENY)
    allowance = binding("guarded", AclOperation.ALL, AclPermissionType.ALLOW)
    for future in admin.create_acls([denial, allowance]).values():
        assert future.result(PATIENCE_S) is None
    wait_until_it_may("guarded", cluster.bootstrap, allowed=False)
    meant = AclBindingFilter(
        ResourceType.TOPIC,
        "guarded",
        ResourcePatternType.MATCH,
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert set(admin.describe_acls(meant).result(PATIENCE_S)) == {denial, allowance}
    only_denial = AclBindingFilter(
        ResourceType.TOPIC,
        "guarded",
        ResourcePatternType.LITERAL,
        WHO,
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    (deleted,) = admin.delete_acls([only_denial]).values()
    assert deleted.result(PATIENCE_S) == [denial]
    wait_until_it_may("guarded", cluster.bootstrap, allowed=True)


@contextlib.contextmanager
def python_admin(bootstrap: str) -> Iterator[kafka.admin.KafkaAdminClient]:
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        yield admin
    finally:
        admin.close()


def test_kafka_python_denies_lists_and_allows_again(cluster: RunningCluster, follower: str) -> None:
    Confluent(cluster.bootstrap).create("pythonic-1", 1, replication_factor=1)
    entry = kafka.admin.ACL(
        principal=WHO,
        host="*",
        operation=kafka.admin.ACLOperation.WRITE,
        permission_type=kafka.admin.ACLPermissionType.DENY,
        resource_pattern=kafka.admin.ResourcePattern(
            kafka.admin.ResourceType.TOPIC, "pythonic-", kafka.admin.ACLResourcePatternType.PREFIXED
        ),
    )
    meant = kafka.admin.ACLFilter(
        principal=None,
        host=None,
        operation=kafka.admin.ACLOperation.ANY,
        permission_type=kafka.admin.ACLPermissionType.ANY,
        resource_pattern=kafka.admin.ResourcePatternFilter(
            kafka.admin.ResourceType.TOPIC, "pythonic-1", kafka.admin.ACLResourcePatternType.MATCH
        ),
    )
    with python_admin(follower) as admin:
        made = admin.create_acls([entry])
        assert list(made["succeeded"]) == [entry]
        wait_until_it_may("pythonic-1", cluster.bootstrap, allowed=False)
        found, _ = admin.describe_acls(meant)
        assert found == [entry]
        ((_, deleted, _),) = admin.delete_acls([meant])
        assert deleted == [entry]
    wait_until_it_may("pythonic-1", cluster.bootstrap, allowed=True)


def test_the_command_adds_lists_and_removes(
    cluster: RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def acls(*words: str) -> str:
        assert run(["acls", "--bootstrap-server", cluster.bootstrap, *words]) == 0
        return capsys.readouterr().out

    entry = ("--deny-principal", WHO, "--operation", "Read", "--topic", "by-command")
    added = acls("--add", *entry)
    resource = "ResourcePattern(resourceType=TOPIC, name=by-command, patternType=LITERAL)"
    assert f"Adding ACLs for resource `{resource}`: \n" in added
    assert f"(principal={WHO}, host=*, operation=READ, permissionType=DENY)" in added
    listed = ("--list", "--topic", "by-command", "--json")

    def operations() -> list[str]:
        return [one["operation"] for one in json.loads(acls(*listed))]

    wait_until(lambda: operations() == ["READ"], "the entry", timeout_s=PATIENCE_S)
    acls("--remove", *entry, "--force")
    wait_until(lambda: not operations(), "the entry to be gone", timeout_s=PATIENCE_S)


OPEN, GUARDED = "session-open", "session-guarded"
BOTH_BROKERS = (0, 1)
"""Partitions: each broker leads one of each topic, so its fetch session has both topics."""


class SessionReader:
    """A consumer of kafka-python, which has fetch sessions and names once what it reads."""

    def __init__(self, bootstrap: str) -> None:
        self.values: set[bytes] = set()
        self.refusals = 0
        self._consumer: Any = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        )
        self._consumer.assign(
            [kafka.TopicPartition(topic, n) for topic in (OPEN, GUARDED) for n in BOTH_BROKERS]
        )

    def poll(self) -> None:
        try:
            for records in self._consumer.poll(timeout_ms=200).values():
                self.values.update(record.value for record in records)
        except kafka.errors.TopicAuthorizationFailedError:
            self.refusals += 1

    def read(self, *values: bytes) -> None:
        """Poll until these have come."""

        def have_come() -> bool:
            self.poll()
            return self.values.issuperset(values)

        wait_until(have_come, lambda: f"{values} beside {self.values}", timeout_s=PATIENCE_S)

    def be_refused(self) -> None:
        """Poll until the broker has refused something."""

        def was_refused() -> bool:
            self.poll()
            return self.refusals > 0

        wait_until(was_refused, "a refusal", timeout_s=PATIENCE_S)

    def close(self) -> None:
        self._consumer.close()


def values_of(topic: str, round_: int) -> list[bytes]:
    return [f"{topic} {round_}.{n}".encode() for n in BOTH_BROKERS]


def test_f5_a_fetch_session_obeys_a_right_that_is_revoked_and_given_again(
    cluster: RunningCluster,
) -> None:
    confluent = Confluent(cluster.bootstrap)
    for topic in (OPEN, GUARDED):
        confluent.create(topic, len(BOTH_BROKERS), replication_factor=1)

    def produce(round_: int) -> None:
        for topic in (GUARDED, OPEN):
            values = values_of(topic, round_)
            confluent.produce(topic, {n: [values[n]] for n in BOTH_BROKERS})

    guarded = kafka.admin.ResourcePattern(
        kafka.admin.ResourceType.TOPIC, GUARDED, kafka.admin.ACLResourcePatternType.LITERAL
    )
    everything, denial = (
        kafka.admin.ACL(
            principal=WHO,
            host="*",
            operation=operation,
            permission_type=permission,
            resource_pattern=guarded,
        )
        for operation, permission in (
            (kafka.admin.ACLOperation.ALL, kafka.admin.ACLPermissionType.ALLOW),
            (kafka.admin.ACLOperation.READ, kafka.admin.ACLPermissionType.DENY),
        )
    )
    reader = SessionReader(cluster.bootstrap)
    with contextlib.closing(reader), python_admin(cluster.bootstrap) as admin:
        produce(0)
        reader.read(*values_of(OPEN, 0), *values_of(GUARDED, 0))
        before = set(reader.values)
        admin.create_acls([everything, denial])
        reader.be_refused()
        produce(1)
        reader.read(*values_of(OPEN, 1))
        assert reader.values == before.union(values_of(OPEN, 1))
        admin.delete_acls([_filter_of(denial)])
        reader.read(*values_of(GUARDED, 1))
        produce(2)
        reader.read(*values_of(OPEN, 2), *values_of(GUARDED, 2))


def _filter_of(entry: Any) -> Any:  # noqa: ANN401 - kafka-python is not typed
    return kafka.admin.ACLFilter(
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
        resource_pattern=entry.resource_pattern,
    )
