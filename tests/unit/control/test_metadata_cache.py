"""What a broker tells its clients, from what the controller told it."""

from collections.abc import Mapping

import immutables
import msgspec
import pytest

from quorate.broker.controller.channels.control_requests import ControlRequestBuilder
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.common.types import (
    NO_BROKER,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    MetadataOffset,
    TopicId,
    TopicPartition,
)
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import Listener, PartitionChange
from quorate_proto.v1.control_pb2 import UpdateMetadataRequest
from tests.support.metadata import MetadataLogBuilder, topic_id_of


def requests() -> ControlRequestBuilder:
    """New ones: they keep what they made of an image by its offset, and each test has a log."""
    return ControlRequestBuilder(
        ControllerTenure(BrokerId(1), ControllerEpoch(1)), ack_timeout_ms=1000
    )


def full(image: Image) -> UpdateMetadataRequest:
    return UpdateMetadataRequest.FromString(requests().full_metadata(image).body)


def delta(image: Image, *topics: str) -> UpdateMetadataRequest:
    return UpdateMetadataRequest.FromString(
        requests().update_metadata(image, frozenset(topics)).body
    )


def cluster() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(1)
    log.create_topic("orders", (1, 2), (2, 3), (3, 1))
    return log


def test_b1_packed_columns_come_out_as_they_went_in() -> None:
    log = cluster()
    log.stop_broker(3)
    cache = MetadataCache()
    cache.update(full(log.image))
    image = log.image
    assert cache.metadata_offset == image.offset
    assert cache.controller_id == 1
    assert set(cache.brokers) == {1, 2}
    assert cache.brokers[BrokerId(2)].kafka == image.brokers[BrokerId(2)].kafka
    assert cache.topic_name(topic_id_of("orders")) == "orders"
    topic = cache.topic("orders")
    assert topic is not None
    for told, known in zip(topic.partitions, image.topics["orders"].partitions, strict=True):
        assert (told.leader, told.leader_epoch, told.replicas, told.isr) == (
            known.leader,
            known.leader_epoch,
            known.replicas,
            known.isr,
        )


def test_where_each_listener_of_a_broker_is_comes_out_as_it_went_in() -> None:
    """A broker that names none has the one that every broker had before."""
    log = cluster()
    guarded = Endpoint("outside", 9094)
    log.register_again(2, listeners=(Listener(name="SASL_SSL", endpoint=guarded),))
    cache = MetadataCache()
    told = ControlRequestBuilder(
        ControllerTenure(BrokerId(1), ControllerEpoch(1)), ack_timeout_ms=1000
    )
    cache.update(UpdateMetadataRequest.FromString(told.full_metadata(log.image).body))
    first, second = (cache.brokers[BrokerId(number)] for number in (1, 2))
    assert first.listeners == {"PLAINTEXT": log.image.brokers[BrokerId(1)].kafka}
    assert second.listeners == {"SASL_SSL": guarded}


def test_b1_who_is_not_in_the_isr_comes_out_as_it_went_in() -> None:
    log = cluster()
    for number, (leader, isr) in enumerate([(2, (2,)), (NO_BROKER, ()), (3, (3, 1))]):
        log.write_as_controller(
            PartitionChange(
                topic="orders",
                topic_id=topic_id_of("orders"),
                partition=number,
                expected_version=0,
                leader=BrokerId(leader),
                leader_epoch=LeaderEpoch(1),
                isr=tuple(map(BrokerId, isr)),
                controller_id=BrokerId(1),
                controller_epoch=ControllerEpoch(1),
            )
        )
    log.create_topic("more", (1, 2, 3))
    cache = MetadataCache()
    cache.update(full(log.image))
    isrs = [set(one.isr) for one in cache.topics["orders"].partitions]
    assert isrs == [{2}, set(), {1, 3}]
    assert [one.replicas for one in cache.topics["orders"].partitions] == [(1, 2), (2, 3), (3, 1)]
    assert cache.topics["more"].partitions[0].isr == (1, 2, 3)


def test_b1_changes_are_laid_over_what_is_known() -> None:
    log = cluster()
    cache = MetadataCache()
    cache.update(full(log.image))
    log.create_topic("more", (2,))
    cache.update(delta(log.image, "more"))
    assert set(cache.topics) == {"orders", "more"}
    assert cache.leader(TopicPartition("more", 0)) == 2
    cache.update(full(cluster().image))
    assert set(cache.topics) == {"orders"}, "a full update leaves nothing else"
    assert cache.topic_name(topic_id_of("more")) is None


def test_c5_a_removed_topic_is_forgotten_by_name_and_id() -> None:
    log = cluster()
    cache = MetadataCache()
    cache.update(full(log.image))
    cache.update(delta(Image(offset=log.image.offset), "orders"))
    assert cache.topic("orders") is None
    assert cache.topic_name(topic_id_of("orders")) is None


def test_c5_who_keeps_something_of_topics_is_told_when_they_are_gone() -> None:
    gone: list[Mapping[str, int]] = []
    log = cluster()
    cache = MetadataCache()
    cache.watch_removals(gone.append)
    cache.update(full(log.image))
    cache.update(delta(log.image, "orders"))
    assert not gone, "it is there"
    cache.update(delta(Image(offset=log.image.offset), "orders"))
    cache.update(delta(Image(offset=log.image.offset), "orders"))
    assert gone == [{"orders": 0}]


@pytest.mark.parametrize("is_full", [True, False])
def test_c5_a_topic_made_anew_is_not_the_one_that_is_gone(is_full: bool) -> None:
    gone: list[Mapping[str, int]] = []
    image = cluster().image
    cache = MetadataCache()
    cache.update(full(image))
    cache.watch_removals(gone.append)
    anew = full(image) if is_full else delta(image, "orders")
    anew.topics[0].topic_id = bytes(16)
    cache.update(anew)
    assert gone == [{"orders": 0}]
    assert cache.topic_name(TopicId(bytes(16))) == "orders"


@pytest.mark.parametrize("was_looked_at", [True, False])
def test_c5_partitions_that_are_gone_are_told_of_too(was_looked_at: bool) -> None:
    gone: list[Mapping[str, int]] = []
    log = cluster()
    cache = MetadataCache()
    cache.update(full(log.image))
    cache.watch_removals(gone.append)
    if was_looked_at:
        assert len(cache.topics["orders"].partitions) == 3
    fewer = delta(log.image, "orders")
    del fewer.topics[0].leaders[2:]
    cache.update(fewer)
    assert gone == [{"orders": 2}]
    assert cache.partition_count("orders") == 2
    assert cache.partition_count("none") == 0


def test_c5_what_is_gone_is_told_where_the_content_comes_from_the_log() -> None:
    """Also what went between the last request and the first image that is shown."""
    gone: list[Mapping[str, int]] = []
    log = cluster()
    log.create_topic("more", (1, 2))
    cache = MetadataCache()
    cache.update(full(log.image))
    cache.watch_removals(gone.append)
    without_orders = msgspec.structs.replace(
        log.image, topics=log.image.topics.delete("orders"), offset=MetadataOffset(100)
    )
    cache.show(without_orders, changed=())
    assert gone == [{"orders": 0}]
    cache.show(
        msgspec.structs.replace(without_orders, topics=immutables.Map()), changed=("more", "other")
    )
    assert gone == [{"orders": 0}, {"more": 0}]


def test_c19_an_image_is_shown_as_requests_would_have_shown_it() -> None:
    log = cluster()
    guarded = Endpoint("outside", 9094)
    log.register_again(2, listeners=(Listener(name="SASL_SSL", endpoint=guarded),))
    told, shown = MetadataCache(), MetadataCache()
    told.update(full(log.image))
    shown.show(log.image, changed=())
    assert shown.brokers == told.brokers
    assert (shown.controller_id, shown.metadata_offset) == (1, told.metadata_offset)
    assert shown.topic_name(topic_id_of("orders")) == "orders"
    assert shown.partition_count("orders") == 3
    for number in range(3):
        one, other = (each.partition(TopicPartition("orders", number)) for each in (told, shown))
        assert one is not None
        assert other is not None
        assert (one.leader, one.leader_epoch, one.replicas, one.isr) == (
            other.leader,
            other.leader_epoch,
            other.replicas,
            other.isr,
        )
    before = shown.brokers
    shown.show(msgspec.structs.replace(log.image, controller=None), changed=("orders",))
    assert shown.controller_id == 1, "as long as there is no other"
    assert shown.brokers == before
    assert shown.brokers is not before, "the sign by which cached answers are given up"


def test_c19_what_is_not_known_has_no_leader() -> None:
    cache = MetadataCache()
    assert cache.leader(TopicPartition("orders", 0)) == NO_BROKER
    cache.update(full(cluster().image))
    assert cache.leader(TopicPartition("orders", 3)) == NO_BROKER
    assert cache.leader(TopicPartition("orders", -1)) == NO_BROKER
    assert cache.partition(TopicPartition("none", 0)) is None
