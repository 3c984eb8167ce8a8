"""The image shares what did not change, and every record has a path with a version."""

import pytest

from quorate.common.types import BrokerId, LeaderEpoch, TopicPartition
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import interned
from quorate.metadata_log.paths import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    PRODUCER_IDS,
    QUORUM_VOTERS,
    addition_path,
    broker_path,
    deletion_path,
    leader_and_isr_path,
    reassignment_path,
    removal_path,
    topic_path,
    version_at,
)
from quorate.metadata_log.records import (
    PartitionChange,
    ProducerIdBlock,
    QuorumVoterSet,
    TopicDeletionPending,
)
from tests.support.metadata import MetadataLogBuilder, quorum_voter, topic_id_of

TP = TopicPartition("a.b_c-1", 1)


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.start_broker(2)
    log.elect_controller(1)
    log.create_topic(TP.topic, (1, 2), (2, 1))
    return log


def change_leader(log: MetadataLogBuilder, tp: TopicPartition, leader: int) -> None:
    before = log.image.partition(tp)
    assert before is not None
    result = log.write_as_controller(
        PartitionChange(
            topic=tp.topic,
            topic_id=log.image.topics[tp.topic].topic_id,
            partition=tp.partition,
            expected_version=before.version,
            leader=BrokerId(leader),
            leader_epoch=LeaderEpoch(before.leader_epoch + 1),
            isr=before.isr,
            controller_id=log.image.controller_id,
            controller_epoch=log.image.controller_epoch,
        )
    )
    assert result.ok


# --- sharing ------------------------------------------------------------------------------------


def test_a_change_shares_every_leaf_it_does_not_touch(log: MetadataLogBuilder) -> None:
    log.create_topic("other", *[(1, 2)] * 50)
    before = log.image
    change_leader(log, TP, 1)
    after = log.image
    assert after.topics["other"] is before.topics["other"]
    assert after.topics[TP.topic].partitions[0] is before.topics[TP.topic].partitions[0]
    assert after.brokers is before.brokers
    assert after.configs is before.configs


def test_earlier_images_stay_as_they_were(log: MetadataLogBuilder) -> None:
    before = log.image
    change_leader(log, TP, 1)
    log.stop_broker(2)
    old = before.partition(TP)
    assert old is not None
    assert (old.leader, old.leader_epoch) == (2, 0)
    assert set(before.brokers) == {1, 2}


def test_replica_lists_are_shared_between_partitions(log: MetadataLogBuilder) -> None:
    log.create_topic("wide", *[(1, 2)] * 20)
    partitions = log.image.topics["wide"].partitions
    assert len({id(p.replicas) for p in partitions} | {id(p.isr) for p in partitions}) == 1
    change_leader(log, TopicPartition("wide", 7), 2)
    changed = log.image.partition(TopicPartition("wide", 7))
    assert changed is not None
    assert changed.isr is interned((BrokerId(1), BrokerId(2)))


def test_partition_is_none_where_there_is_none(log: MetadataLogBuilder) -> None:
    for number in (-1, 2):
        assert log.image.partition(TopicPartition(TP.topic, number)) is None
    assert log.image.partition(TopicPartition("gone", 0)) is None
    assert log.image.topic_by_id(topic_id_of("gone")) is None
    assert Image().max_broker_epoch == -1


# --- paths --------------------------------------------------------------------------------------


def test_every_record_has_a_version_at_its_path(log: MetadataLogBuilder) -> None:
    image = log.image
    assert image.controller is not None
    assert version_at(image, CONTROLLER) == image.controller.version
    assert version_at(image, CONTROLLER_EPOCH) == 1
    assert version_at(image, broker_path(BrokerId(2))) == image.brokers[BrokerId(2)].epoch
    assert version_at(image, topic_path(TP.topic)) == image.topics[TP.topic].version
    assert version_at(image, leader_and_isr_path(TP)) == 0
    change_leader(log, TP, 1)
    assert version_at(log.image, leader_and_isr_path(TP)) == 1
    log.write_as_controller(ProducerIdBlock(next_producer_id=7))
    assert version_at(log.image, PRODUCER_IDS) == 7
    voters = (quorum_voter(1), quorum_voter(2, observer=True))
    log.write(QuorumVoterSet(expected_version=log.image.voter_set.version, voters=voters))
    assert version_at(log.image, QUORUM_VOTERS) == log.image.offset
    assert log.reassign(TP, replicas=(2, 1), target=(1,)).ok
    assert version_at(log.image, reassignment_path(TP)) == log.image.offset
    log.write_as_controller(TopicDeletionPending(name=TP.topic, topic_id=topic_id_of(TP.topic)))
    assert version_at(log.image, deletion_path(TP.topic)) == log.image.offset


def test_c14_pending_partitions_lie_at_paths_of_their_own(log: MetadataLogBuilder) -> None:
    assert log.create_topic("b", (1,)).ok
    assert log.add_partitions("b", (1,), (1,)).ok
    versions = [version_at(log.image, addition_path(TopicPartition("b", n))) for n in range(4)]
    assert versions == [None, log.image.offset, log.image.offset, None]
    log.complete_addition("b")
    assert log.remove_partitions("b", 1).ok
    versions = [version_at(log.image, removal_path(TopicPartition("b", n))) for n in range(4)]
    assert versions == [None, log.image.offset, log.image.offset, None]
    log.complete_removal("b")
    assert version_at(log.image, topic_path("b")) == log.image.offset


@pytest.mark.parametrize(
    "path",
    [
        CONTROLLER,
        CONTROLLER_EPOCH,
        QUORUM_VOTERS,
        broker_path(BrokerId(1)),
        topic_path("t"),
        leader_and_isr_path(TopicPartition("t", 0)),
        deletion_path("t"),
        reassignment_path(TopicPartition("t", 0)),
        addition_path(TopicPartition("t", 0)),
        removal_path(TopicPartition("t", 0)),
    ],
)
def test_a_path_without_a_record_has_no_version(path: str) -> None:
    assert version_at(Image(), path) is None


@pytest.mark.parametrize(
    "path",
    ["", "/", "/nowhere", "/brokers/ids/x", "/brokers/ids/-1", "/brokers/topics/t/0", "/brokers"],
)
def test_a_path_where_nothing_can_lie_is_an_error(path: str) -> None:
    with pytest.raises(ValueError, match="no metadata record can lie at"):
        version_at(Image(), path)
