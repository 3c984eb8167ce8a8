"""A cluster in which there is something to attack: topics, a group, users, entries and quotas."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.hostile_requests import good_clients
from bench.hostile_requests.values import VICTIM
from bench.hostile_requests.wire import PASSWORD, Wire
from quorate.client.results import AclBinding, NewTopic, ScramUpsertion
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.testing import RunningCluster, running_cluster

NOBODY, ROOT = "nobody", "root"
PARTITIONS: Final = 500
MEMBERS_METADATA_BYTES: Final = 1 << 20
_OFFSET_METADATA: Final = "m" * 1_000
_COORDINATOR_TIMEOUT_S: Final = 30.0
SETTINGS: Final[Mapping[str, object]] = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "grpc.security.protocol": "SSL",
    "grpc.ssl.client.auth": "required",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:CN=admin;User:{ROOT}",
    "delegation.token.secret.key": "a secret of the bench",
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
}


@contextmanager
def world(
    brokers: int, settings: Mapping[str, object], *, partitions: int = PARTITIONS
) -> Iterator[RunningCluster]:
    """A running cluster, filled."""
    voters = 1 if brokers == 1 else 3
    with running_cluster(
        brokers=brokers, voters=voters, config={**SETTINGS, **settings}
    ) as cluster:
        _add_users(cluster)
        _add_topics(cluster, brokers, partitions)
        _wait_until_served(cluster)
        with Wire(cluster.broker_address(1), ROOT) as wire:
            member_id = _add_group(wire, partitions)
            wire.ask(22, 1, {"transactional_id": VICTIM, "transaction_timeout": 60_000})
            yield cluster
        assert member_id


def log_path(cluster: RunningCluster, broker_id: int) -> Path:
    return cluster.folder / "logs" / f"broker-{broker_id}.log"


def _add_users(cluster: RunningCluster) -> None:
    names = (NOBODY, ROOT, good_clients.USER, VICTIM)
    with cluster.admin() as admin:
        for result in admin.alter_user_scram_credentials(
            [ScramUpsertion.of_password(one, "SCRAM-SHA-256", PASSWORD) for one in names]
        ):
            result.raise_for_error()
        bindings = [
            _binding(ResourceType.TOPIC, good_clients.TOPIC, f"User:{good_clients.USER}", operation)
            for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
        ]
        bindings += [
            _binding(ResourceType.TOPIC, f"{VICTIM}-{n}", f"User:{VICTIM}", AclOperation.READ)
            for n in range(100)
        ]
        admin.create_acls(bindings)


def _binding(kind: ResourceType, name: str, principal: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        resource_type=kind, resource_name=name, principal=principal, operation=operation
    )


def _add_topics(cluster: RunningCluster, brokers: int, partitions: int) -> None:
    order = [1, *(one for one in range(1, brokers + 1) if one != 1)]
    with cluster.admin() as admin:
        for topic in (
            NewTopic(name=good_clients.TOPIC, assignments=[order]),
            NewTopic(name=VICTIM, num_partitions=partitions, replication_factor=1),
        ):
            admin.create_topics([topic])[0].raise_for_error()


def _wait_until_served(cluster: RunningCluster) -> None:
    """Wait until users can log in and the coordinators have their topics."""
    deadline = time.monotonic() + _COORDINATOR_TIMEOUT_S
    while True:
        try:
            with Wire(cluster.broker_address(1), ROOT) as wire:
                codes = [
                    wire.ask(10, 2, {"key": VICTIM, "key_type": kind}).error_code for kind in (0, 1)
                ]
                if not any(codes):
                    return
        except OSError:
            codes = []
        if time.monotonic() > deadline:
            raise RuntimeError(f"coordinators are not there: {codes}")
        time.sleep(0.05)


def _add_group(wire: Wire, partitions: int) -> str:
    """A member with large metadata, and an offset for each partition."""
    deadline = time.monotonic() + _COORDINATOR_TIMEOUT_S
    values = {
        "group_id": VICTIM,
        "session_timeout": 1_800_000,
        "rebalance_timeout": 1_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(MEMBERS_METADATA_BYTES)}],
    }
    while (joined := wire.ask(11, 2, values)).error_code:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the group takes no member: {joined.error_code}")
        time.sleep(0.05)
    synced = wire.ask(
        14,
        1,
        {
            "group_id": VICTIM,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "assignments": [{"member_id": joined.member_id, "assignment": b"all"}],
        },
    )
    if synced.error_code:
        raise RuntimeError(f"the group does not begin: {json.dumps(int(synced.error_code))}")
    _commit(wire, joined.generation_id, joined.member_id, partitions)
    return str(joined.member_id)


def _commit(wire: Wire, generation: int, member_id: str, partitions: int) -> None:
    offsets = [
        {"partition_index": n, "committed_offset": 0, "committed_leader_epoch": -1,
         "committed_metadata": _OFFSET_METADATA}
        for n in range(partitions)
    ]  # fmt: skip
    for first in range(0, partitions, 100):
        answer = wire.ask(
            8,
            6,
            {
                "group_id": VICTIM,
                "generation_id_or_member_epoch": generation,
                "member_id": member_id,
                "topics": [{"name": VICTIM, "partitions": offsets[first : first + 100]}],
            },
        )
        codes = {one.error_code for topic in answer.topics for one in topic.partitions}
        if any(codes):
            raise RuntimeError(f"offsets are not committed: {codes}")
