"""What changed, record by record: old and new, who wrote it, and nothing that was refused."""

import json
from typing import Any, get_args

import pytest

from quorate.common.types import ControllerEpoch, SessionId, TopicPartition
from quorate.metadata_log.codec import decode_transaction
from quorate.metadata_log.image import Image
from quorate.metadata_log.reader import LogEntry
from quorate.metadata_log.records import (
    AclAdded,
    ChangeNote,
    ConfigSet,
    ControllerEpochIs,
    DelegationTokenRemoved,
    FeatureLevel,
    Operation,
    PipelineRun,
    PipelineSet,
    PipelineTopicOffsets,
    ProducerIdBlock,
    Record,
    ScramCredentialRemoved,
    ScramCredentialSet,
    SessionClosed,
    SessionOpened,
    TopicRemoved,
    Transaction,
)
from quorate.metadata_log.tree.history import QUORUM, KeyChange, history
from quorate.metadata_log.tree.touched import _TOUCHED
from quorate.metadata_log.tree.tree import value_at, walk
from tests.support.metadata import (
    MetadataLogBuilder,
    scram_credential,
    session_of,
    topic_id_of,
)


def changes_of(
    entries: list[LogEntry], kinds: frozenset[str] = frozenset()
) -> tuple[Image, list[KeyChange]]:
    """The whole log's, from nothing; the image after it."""
    image = Image()
    found: list[KeyChange] = []
    for offset, encoded in entries:
        image, changes = history(image, offset, decode_transaction(encoded), kinds)
        found += changes
    return image, found


def newest(log: MetadataLogBuilder, kinds: frozenset[str] = frozenset()) -> list[KeyChange]:
    """Of the last transaction."""
    last = log.entries[-1].offset
    return [change for change in changes_of(log.entries, kinds)[1] if change.offset == last]


def shown(change: KeyChange) -> tuple[str, Any, Any]:
    return (
        change.key,
        None if change.old is None else json.loads(change.old),
        None if change.new is None else json.loads(change.new),
    )


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    for broker_id in (0, 1, 2):
        log.start_broker(broker_id)
    log.elect_controller(1)
    log.admit_all()
    return log


def busy(log: MetadataLogBuilder) -> None:
    """Nearly every kind of record."""
    log.create_topic("orders", (0, 1), (1, 2))
    log.create_topic("doomed", (1, 2))
    log.delete_topic("doomed")
    log.add_partitions("orders", (2, 1), (1, 0))
    log.complete_addition("orders")
    log.remove_partitions("orders", 3)
    log.complete_removal("orders")
    log.reassign(TopicPartition("orders", 0), replicas=(0, 1, 2), target=(0, 2))
    for name in ("orders", "", "a/b"):
        log.write_as_controller(
            ConfigSet(entity_type="topic", entity_name=name, key="retention.ms", value="1")
        )
    log.write_as_controller(FeatureLevel(name="inter_broker_protocol", level=2))
    log.write_as_controller(ProducerIdBlock(next_producer_id=1_000))
    log.write_as_controller(
        ScramCredentialSet(user="a/b", mechanism=1, credential=scram_credential())
    )
    log.write_as_controller(_acl("orders"))
    log.write_as_controller(
        PipelineSet(
            name="lake",
            expected_version=0,
            run_epoch=PipelineSet.BEGIN,
            sink="/lake",
            topics=(PipelineTopicOffsets(topic="t", topic_id=topic_id_of("t"), offsets=(5, -1)),),
            run=PipelineRun(owner="h:1"),
        )
    )
    log.stop_broker(1)


def _acl(name: str) -> AclAdded:
    return AclAdded(
        resource_type=2,
        pattern_type=3,
        resource_name=name,
        principal="User:alice",
        host="*",
        operation=3,
        permission=3,
    )


def test_every_kind_of_record_says_where_it_writes() -> None:
    assert set(_TOUCHED) == set(get_args(Record))


def test_the_changes_of_a_log_add_up_to_its_tree(log: MetadataLogBuilder) -> None:
    busy(log)
    image, changes = changes_of(log.entries)
    assert image == log.image
    told: dict[str, Any] = {path: value_at(Image(), path) for path in walk(Image())}
    for change in changes:
        key, old, new = shown(change)
        assert told.get(key) == old, key
        told[key] = new
    left = {key: value for key, value in told.items() if value is not None}
    tree = {path: json.loads(json.dumps(value_at(image, path))) for path in walk(image)}
    for path, value in tree.items():
        if path.startswith("/brokers/topics/") and path.endswith("leaderAndISR"):
            replicas = left[path].pop("replicas")
            topic, partition = path.split("/")[3:5]
            leaf = image.partition(TopicPartition(topic, int(partition)))
            assert leaf is not None
            assert tuple(replicas) == leaf.replicas
        elif path.startswith("/brokers/topics/"):
            partitions = value.pop("partitions")
            assert left[path].pop("num_partitions") == len(partitions)
    assert left == tree


def test_a_partitions_change_has_both_leaves(log: MetadataLogBuilder) -> None:
    log.create_topic("orders", (0, 1))
    log.reassign(TopicPartition("orders", 0), replicas=(0, 1, 2), target=(1, 2), leader=1)
    moved, pending = newest(log)
    assert (moved.kind, moved.topic, moved.partition) == ("partition_reassignment", "orders", 0)
    assert moved.leaf_before is not None
    assert moved.leaf_after is not None
    assert (moved.leaf_before.leader, moved.leaf_after.leader) == (0, 1)
    assert (moved.leaf_before.replicas, moved.leaf_after.replicas) == ((0, 1), (0, 1, 2))
    assert moved.author.controller_epoch == 1
    assert shown(pending)[0] == "/admin/partitions_reassigned/orders/0"
    assert (pending.topic, pending.partition, pending.old) == ("orders", 0, None)


def test_a_topic_that_goes_takes_everything_of_it_along(log: MetadataLogBuilder) -> None:
    log.create_topic("doomed", (0, 1), (1, 2))
    log.write_as_controller(
        ConfigSet(entity_type="topic", entity_name="doomed", key="retention.ms", value="1")
    )
    log.delete_topic("doomed")
    log.write_as_controller(TopicRemoved(name="doomed", topic_id=topic_id_of("doomed")))
    gone = newest(log)
    assert [change.key for change in gone] == [
        "/brokers/topics/doomed",
        "/admin/delete_topics/doomed",
        "/config/topic/doomed",
        "/brokers/topics/doomed/0/leaderAndISR",
        "/brokers/topics/doomed/1/leaderAndISR",
    ]
    assert all(change.new is None and change.topic == "doomed" for change in gone)
    assert json.loads(gone[2].old or b"") == {"retention.ms": "1"}


def test_a_session_that_expires_takes_broker_and_controller_along(log: MetadataLogBuilder) -> None:
    log.stop_broker(1)
    session, broker, controller = newest(log)
    assert session.key == f"/sessions/{session_of(1).hex()}"
    assert (broker.key, broker.broker, broker.new) == ("/brokers/ids/1", 1, None)
    assert (controller.key, controller.broker, controller.new) == ("/controller", 1, None)
    assert controller.author.writer == QUORUM


def test_each_key_of_a_configuration_is_a_change_of_its_own(log: MetadataLogBuilder) -> None:
    log.write_as_controller(
        *(
            ConfigSet(entity_type="topic", entity_name="t", key=key, value=value)
            for key, value in (("a", "1"), ("b", "2"), ("a", None))
        )
    )
    assert [(change.record_index, *shown(change)[1:]) for change in newest(log)] == [
        (0, None, {"a": "1"}),
        (1, {"a": "1"}, {"a": "1", "b": "2"}),
        (2, {"a": "1", "b": "2"}, {"b": "2"}),
    ]
    assert {change.topic for change in newest(log)} == {"t"}


def test_refused_operations_change_nothing_and_count(log: MetadataLogBuilder) -> None:
    """Each stands alone: the first is refused after its first record, the second is not."""
    config = ConfigSet(entity_type="topic", entity_name="t", key="a", value="1")
    epoch = (ControllerEpochIs(controller_epoch=ControllerEpoch(1)),)
    log.transact(
        Operation(records=(config, ProducerIdBlock(next_producer_id=0)), conditions=epoch),
        Operation(records=(ProducerIdBlock(next_producer_id=10),), conditions=epoch),
        atomic=False,
    )
    (change,) = newest(log)
    assert (change.key, change.record_index) == ("/producer_ids", 2)
    log.transact(
        Operation(records=(config,), conditions=epoch),
        Operation(records=(ProducerIdBlock(next_producer_id=0),), conditions=epoch),
    )
    assert newest(log) == []


def test_a_retry_changes_nothing_a_second_time(log: MetadataLogBuilder) -> None:
    operation = Operation(
        records=(ProducerIdBlock(next_producer_id=10),),
        conditions=(ControllerEpochIs(controller_epoch=ControllerEpoch(1)),),
    )
    for changes in (1, 0):
        log.transact(operation, client_id=session_of(1), sequence=1)
        assert len(newest(log)) == changes


def test_who_wrote_it_and_for_whom(log: MetadataLogBuilder) -> None:
    log.write(
        SessionOpened(session_id=SessionId(b"s" * 16), timeout_ms=6_000, description="a person")
    )
    note = ChangeNote(principal="User:alice", client_host="h", client_id="c", api="AlterConfigs")
    config = ConfigSet(entity_type="broker", entity_name="", key="a", value="1")
    epoch = (ControllerEpochIs(controller_epoch=ControllerEpoch(1)),)
    log.apply(
        Transaction(
            operations=(Operation(records=(config, note), conditions=epoch),),
            client_id=session_of(0),
            sequence=1,
            timestamp_ms=1_700_000_000_000,
        )
    )
    (change,) = newest(log)
    assert change.key == "/config/broker/<default>"
    assert change.author == (1_700_000_000_000, 1, "", 0, note)
    assert change.topic is None
    log.transact(
        Operation(records=(SessionClosed(session_id=SessionId(b"s" * 16)),)),
        client_id=SessionId(b"s" * 16),
        sequence=1,
    )
    (closed,) = newest(log)
    assert (closed.author.writer, closed.author.writer_broker) == ("a person", None)


def test_a_credential_that_looks_the_same_has_been_changed_all_the_same(
    log: MetadataLogBuilder,
) -> None:
    for record in (
        ScramCredentialSet(user="u", mechanism=2, credential=scram_credential(2)),
        ScramCredentialSet(user="u", mechanism=2, credential=scram_credential(2)),
        ScramCredentialRemoved(user="u", mechanism=2),
    ):
        log.write_as_controller(record)
        (change,) = newest(log)
        assert change.key == "/scram/u/SCRAM-SHA-512"
    log.write_as_controller(DelegationTokenRemoved(token_id="nothing"))
    assert newest(log) == []


def test_only_the_kinds_asked_for(log: MetadataLogBuilder) -> None:
    busy(log)
    every = changes_of(log.entries)[1]
    for kinds in ({"partition_reassignment"}, {"config_set", "session_closed"}):
        image, some = changes_of(log.entries, frozenset(kinds))
        assert image == log.image
        assert some == [change for change in every if change.kind in kinds]
        assert {change.kind for change in some} == kinds
