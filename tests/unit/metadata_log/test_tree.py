"""The image as a tree: every path of the design, what lies there, and what lies below."""

import json
from typing import Any

import pytest

from quorate.common.types import ControllerEpoch, TopicPartition
from quorate.metadata_log.codec import decode_transaction
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import (
    ClientQuotaSet,
    ConfigSet,
    ControllerEpochIs,
    DelegationTokenSet,
    FeatureLevel,
    Operation,
    ProducerIdBlock,
    ScramCredentialSet,
    SessionOpened,
    TopicDeletionPending,
)
from quorate.metadata_log.tree.readable import readable_transaction
from quorate.metadata_log.tree.tree import children, value_at, walk
from tests.support.metadata import (
    MetadataLogBuilder,
    begun_pipeline,
    scram_credential,
    session_of,
    topic_id_of,
)

ORDERS_ID = topic_id_of("orders").hex()


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 10):
        log.start_broker(broker_id)
    log.elect_controller(2)
    log.create_topic("orders", (1, 2), (2, 10))
    log.create_topic("doomed", (1,))
    log.write_as_controller(TopicDeletionPending(name="doomed", topic_id=topic_id_of("doomed")))
    log.create_topic("grows", (1, 2))
    assert log.add_partitions("grows", (2, 1), (1, 10)).ok
    log.create_topic("shrinks", (1,), (2,), (10,))
    assert log.remove_partitions("shrinks", 1).ok
    log.reassign(TopicPartition("orders", 1), replicas=(2, 10, 1), target=(2, 1))
    for name in ("orders", "", "a/b"):
        log.write_as_controller(
            ConfigSet(entity_type="topic", entity_name=name, key="retention.ms", value="1")
        )
    log.write_as_controller(FeatureLevel(name="inter_broker_protocol", level=2))
    log.write_as_controller(ProducerIdBlock(next_producer_id=1_000))
    for user, client_id in (("a/b", None), ("a/b", ""), (None, "c"), ("", "c")):
        log.write_as_controller(
            ClientQuotaSet(user=user, client_id=client_id, key="producer_byte_rate", value=1.5)
        )
    for mechanism in (1, 2):
        log.write_as_controller(
            ScramCredentialSet(
                user="a/b", mechanism=mechanism, credential=scram_credential(mechanism)
            )
        )
    log.write_as_controller(
        DelegationTokenSet(
            token_id="t1",
            owner="User:alice",
            requester="User:bob",
            renewers=("User:carol",),
            issue_ms=1,
            expiry_ms=2,
            max_ms=3,
        )
    )
    log.write_as_controller(begun_pipeline())
    return log


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (
            "/admin",
            ["delete_topics", "partitions_add", "partitions_reassigned", "partitions_remove"],
        ),
        ("/admin/partitions_add", ["grows"]),
        ("/admin/partitions_add/grows", ["1", "2"]),
        ("/admin/partitions_remove", ["shrinks"]),
        ("/admin/partitions_remove/shrinks", ["1", "2"]),
        ("/admin/delete_topics", ["doomed"]),
        ("/admin/partitions_reassigned", ["orders"]),
        ("/admin/partitions_reassigned/orders", ["1"]),
        ("/brokers", ["ids", "topics"]),
        ("/brokers/ids", ["1", "2", "10"]),
        ("/brokers/topics", ["doomed", "grows", "orders", "shrinks"]),
        ("/brokers/topics/orders", ["0", "1"]),
        ("/brokers/topics/orders/1", ["leaderAndISR"]),
        ("/config", ["topic"]),
        ("/config/topic", ["<default>", "a%2Fb", "orders"]),
        ("/controller", []),
        ("/controller/", []),
        ("/features", ["inter_broker_protocol", "metadata_version"]),
        ("/quorum", ["voters"]),
        ("/brokers/ids/1", []),
        ("/brokers/ids/3", None),
        ("/brokers/topics/gone", None),
        ("/brokers/topics/orders/2", None),
        ("/brokers/topics/orders/x", None),
        ("/config/users", None),
        ("/quotas", ["clients", "ips", "users"]),
        ("/quotas/users", ["<default>", "a%2Fb"]),
        ("/quotas/users/a%2Fb", ["clients"]),
        ("/quotas/users/a%2Fb/clients", ["<default>"]),
        ("/quotas/users/a%2Fb/clients/<default>", []),
        ("/quotas/users/b", None),
        ("/quotas/users/b/clients", None),
        ("/quotas/clients", ["c"]),
        ("/quotas/clients/c", []),
        ("/scram", ["a%2Fb"]),
        ("/scram/a%2Fb", ["SCRAM-SHA-256", "SCRAM-SHA-512"]),
        ("/scram/a%2Fb/SCRAM-SHA-256", []),
        ("/scram/b", None),
        ("/pipelines", ["lake"]),
        ("/pipelines/lake", []),
        ("/tokens", ["t1"]),
        ("/tokens/t1", []),
        ("/zookeeper", None),
        ("/controller/below", None),
    ],
)
def test_names_below_a_path(log: MetadataLogBuilder, path: str, names: list[str] | None) -> None:
    assert children(log.image, path) == names


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/controller", {"version": 1, "brokerid": 2, "timestamp": "1"}),
        ("/controller_epoch", 1),
        ("/producer_ids", {"next_producer_id": 1_000}),
        ("/features/inter_broker_protocol", 2),
        ("/config/topic/<default>", {"retention.ms": "1"}),
        ("/config/topic/a%2Fb", {"retention.ms": "1"}),
        (
            "/brokers/topics/orders/0/leaderAndISR",
            {
                "leader": 1,
                "leader_epoch": 0,
                "isr": (1, 2),
                "controller_id": 2,
                "controller_epoch": 1,
                "version": 0,
            },
        ),
        ("/quotas/users/a%2Fb", {"producer_byte_rate": 1.5}),
        ("/quotas/users/a%2Fb/clients/<default>", {"producer_byte_rate": 1.5}),
        ("/quotas/users/<default>", None),
        ("/quotas/users/<default>/clients/c", {"producer_byte_rate": 1.5}),
        ("/quotas/clients/c", {"producer_byte_rate": 1.5}),
        ("/quotas/clients/d", None),
        ("/quotas/users/a%2Fb/nonsense/c", None),
        ("/scram/a%2Fb/SCRAM-SHA-512", {"iterations": 4_096}),
        ("/scram/a%2Fb/PLAIN", None),
        ("/scram/a%2Fb", None),
        ("/admin/partitions_add/grows/0", None),
        ("/admin/partitions_add/orders/1", None),
        ("/admin/partitions_remove/shrinks/0", None),
        ("/tokens/t2", None),
        ("/brokers", None),
        ("/brokers/ids/x", None),
        ("/brokers/topics/orders/0", None),
        ("/admin/partitions_reassigned/orders/x", None),
        ("/sessions/nonsense", None),
        ("/sessions/00", None),
    ],
)
def test_e1_what_is_recorded_at_a_path(log: MetadataLogBuilder, path: str, value: object) -> None:
    assert value_at(log.image, path) == value


def test_a_topic_tells_its_replicas_and_a_broker_its_epoch(log: MetadataLogBuilder) -> None:
    topic: Any = value_at(log.image, "/brokers/topics/orders")
    assert topic["topic_id"] == ORDERS_ID
    assert topic["partitions"] == {"0": (1, 2), "1": (2, 10, 1)}
    assert (topic["leader_epoch_floor"], topic["removals"]) == (0, [])
    addition: Any = value_at(log.image, "/admin/partitions_add/grows/2")
    assert addition["replicas"] == (1, 10)
    broker: Any = value_at(log.image, "/brokers/ids/10")
    assert broker["broker_epoch"] == log.image.max_broker_epoch
    assert broker["kafka"] == "kafka10:9092"
    assert broker["session_id"] == session_of(10).hex()


def test_a_token_tells_everything_but_its_secret(log: MetadataLogBuilder) -> None:
    assert value_at(log.image, "/tokens/t1") == {
        "owner": "User:alice",
        "requester": "User:bob",
        "renewers": ("User:carol",),
        "issue_ms": 1,
        "expiry_ms": 2,
        "max_ms": 3,
        "version": log.image.tokens["t1"].version,
    }


def test_walking_finds_all_that_is_recorded_and_everything_is_json(
    log: MetadataLogBuilder,
) -> None:
    paths = list(walk(log.image))
    assert len(paths) == len(set(paths))
    for path in paths:
        json.dumps(value_at(log.image, path))
        parent, _, name = path.rpartition("/")
        assert name in (children(log.image, parent or "/") or ())
    assert [one for one in paths if one.startswith("/admin")] == [
        "/admin/delete_topics/doomed",
        "/admin/partitions_add/grows/1",
        "/admin/partitions_add/grows/2",
        "/admin/partitions_reassigned/orders/1",
        "/admin/partitions_remove/shrinks/1",
        "/admin/partitions_remove/shrinks/2",
    ]
    assert list(walk(log.image, "/brokers/topics/orders")) == [
        "/brokers/topics/orders",
        "/brokers/topics/orders/0/leaderAndISR",
        "/brokers/topics/orders/1/leaderAndISR",
    ]
    assert f"/sessions/{session_of(1).hex()}" in paths


def test_nothing_is_recorded_before_the_first_transaction() -> None:
    assert list(walk(Image())) == ["/controller_epoch", "/producer_ids"]
    assert value_at(Image(), "/controller") is None
    assert children(Image(), "/brokers/topics") == []


def test_a_transaction_reads_as_json_with_what_became_of_it(log: MetadataLogBuilder) -> None:
    epoch = ControllerEpochIs(controller_epoch=ControllerEpoch(9))
    operation = Operation(records=(ProducerIdBlock(next_producer_id=2_000),), conditions=(epoch,))
    result = log.transact(operation)
    entry = log.entries[-1]
    told = readable_transaction(entry.offset, decode_transaction(entry.transaction), result)
    (one,) = told["operations"]
    assert (told["offset"], told["client"], one["code"]) == (
        entry.offset,
        None,
        "CONTROLLER_FENCED",
    )
    assert one["records"] == [{"producer_id_block": {"next_producer_id": 2_000}}]
    assert one["conditions"] == [{"ControllerEpochIs": {"controller_epoch": 9}}]
    registration = decode_transaction(log.entries[2].transaction)
    json.dumps(readable_transaction(entry.offset, registration, result))


def test_a_retry_reads_as_one_of_the_first_attempt(log: MetadataLogBuilder) -> None:
    operation = Operation(records=(SessionOpened(session_id=session_of(8), timeout_ms=1),))
    retries = []
    for _ in range(2):
        result = log.transact(operation, client_id=session_of(1), sequence=1)
        entry = log.entries[-1]
        shown = readable_transaction(entry.offset, decode_transaction(entry.transaction), result)
        retries.append(shown["retry_of"])
    assert retries == [None, log.entries[-2].offset]
