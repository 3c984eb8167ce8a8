"""Control requests as bytes."""

from quorate.broker.controller.channels.control_requests import (
    ControlRequestBuilder,
    StoppedReplica,
    addressed,
    hosted_by,
)
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.common.types import BrokerId, ControllerEpoch, TopicIdPartition
from quorate.metadata_log.image import INTER_BROKER_PROTOCOL, Image
from quorate.metadata_log.records import ConfigSet, FeatureLevel, TopicDeletionPending
from quorate_proto.v1.control_pb2 import (
    ControlHeader,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tests.support.metadata import MetadataLogBuilder, topic_id_of


def cluster() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(1)
    log.create_topic("orders", (1, 2), (2, 3))
    log.create_topic("more", (3, 1))
    return log


def requests() -> ControlRequestBuilder:
    return ControlRequestBuilder(
        ControllerTenure(BrokerId(1), ControllerEpoch(1)), ack_timeout_ms=30_000
    )


def expected_header(image: Image, kind: int, version: int) -> ControlHeader:
    return ControlHeader(
        type=kind,
        version=version,
        controller_id=1,
        controller_epoch=1,
        max_broker_epoch=image.max_broker_epoch,
        broker_epoch=-1,
        metadata_offset=image.offset,
        ack_timeout_ms=30_000,
    )


def test_b1_c20_every_request_says_who_sends_it_and_from_which_image() -> None:
    image = cluster().image
    made = requests()
    led = LeaderAndIsrRequest.FromString(
        made.leader_and_isr(image, hosted_by(image, BrokerId(2)), is_init=True).body
    )
    assert led.header == expected_header(image, 4, 5)
    stop = StoppedReplica("orders", TopicIdPartition(topic_id_of("orders"), 1))
    stopped = StopReplicaRequest.FromString(made.stop_replica(image, [stop]).body)
    assert stopped.header == expected_header(image, 5, 4)
    assert stopped.partitions[0].leader_epoch == -2
    told = UpdateMetadataRequest.FromString(made.full_metadata(image).body)
    assert told.header == expected_header(image, 6, 7)


def test_b1_b4_at_level_1_a_request_names_its_receivers_epoch_in_the_older_version() -> None:
    log = cluster()
    log.write_as_controller(FeatureLevel(name=INTER_BROKER_PROTOCOL, level=1))
    image, made = log.image, requests()
    two = image.brokers[BrokerId(2)]
    stop = StoppedReplica("orders", TopicIdPartition(topic_id_of("orders"), 1))
    selection = hosted_by(image, BrokerId(2))
    led = LeaderAndIsrRequest.FromString(
        addressed(made.leader_and_isr(image, selection, is_init=True), two)
    )
    stopped = StopReplicaRequest.FromString(addressed(made.stop_replica(image, [stop]), two))
    told = UpdateMetadataRequest.FromString(addressed(made.full_metadata(image), two))
    for request, version in ((led, 4), (stopped, 3), (told, 6)):
        header = request.header
        assert (header.version, header.max_broker_epoch) == (version, -1)
        assert (header.broker_epoch, header.metadata_offset) == (two.epoch, image.offset)
    assert len(led.topics[0].partitions) == 2
    assert [one.partition for one in stopped.partitions] == [1]
    assert len(told.topics) == 2
    three = image.brokers[BrokerId(3)]
    other = UpdateMetadataRequest.FromString(addressed(made.full_metadata(image), three))
    assert other.header.broker_epoch == three.epoch


def test_b1_b4_at_level_2_the_very_same_bytes_go_to_all() -> None:
    log = cluster()
    log.write_as_controller(FeatureLevel(name=INTER_BROKER_PROTOCOL, level=2))
    full = requests().full_metadata(log.image)
    assert all(addressed(full, broker) is full.body for broker in log.image.brokers.values())


def test_c20_leadership_is_complete_for_each_partition() -> None:
    image = cluster().image
    body = requests().leader_and_isr(image, hosted_by(image, BrokerId(2)), is_init=False).body
    request = LeaderAndIsrRequest.FromString(body)
    assert not request.is_init
    (topic,) = request.topics
    assert (topic.topic, topic.topic_id) == ("orders", topic_id_of("orders"))
    one, two = topic.partitions
    assert (one.partition, one.leader, one.leader_epoch, one.record_version) == (0, 1, 0, 0)
    assert (list(one.isr), list(one.replicas)) == ([1, 2], [1, 2])
    assert (two.partition, two.leader) == (1, 2)
    assert [peer.broker_id for peer in request.brokers] == [1, 2], "those that lead"
    assert request.brokers[0].grpc.host == "grpc1"


def test_b1_update_metadata_is_serialized_once() -> None:
    log = cluster()
    made = requests()
    full = made.full_metadata(log.image)
    assert made.full_metadata(log.image).body is full.body, "the same bytes for every broker"
    log.write_as_controller(
        ConfigSet(entity_type="topic", entity_name="orders", key="k", value="v")
    )
    assert made.full_metadata(log.image).body is not full.body, "made from another image"


def test_b1_a_change_is_serialized_once_for_all_who_lack_it() -> None:
    log = cluster()
    made = requests()
    update = made.update_metadata(log.image, frozenset({"orders"}))
    assert made.update_metadata(log.image, frozenset({"orders"})).body is update.body
    other = made.update_metadata(log.image, frozenset({"orders", "more"}))
    assert [topic.topic for topic in UpdateMetadataRequest.FromString(other.body).topics] == [
        "more",
        "orders",
    ]
    log.create_topic("third", (1,))
    assert made.update_metadata(log.image, frozenset({"orders"})).body is not update.body


def test_b1_a_partition_takes_few_bytes_whatever_its_brokers_are_called() -> None:
    log = MetadataLogBuilder()
    for broker_id in (1_001, 1_002, 1_003):
        log.start_broker(broker_id)
    log.elect_controller(1_001)
    log.create_topic("small", (1_001,))
    small = len(requests().full_metadata(log.image).body)
    log.create_topic("large", *[(1_001, 1_002, 1_003)] * 1_000)
    assert len(requests().full_metadata(log.image).body) - small <= 12 * 1_000


def test_b1_a_topic_is_packed_again_only_when_its_partitions_changed() -> None:
    log = cluster()
    made = requests()
    made.full_metadata(log.image)
    orders, more = made._frames["orders"][1], made._frames["more"][1]
    log.create_topic("third", (1,))
    told = UpdateMetadataRequest.FromString(made.full_metadata(log.image).body)
    assert made._frames["orders"][1] is orders
    assert made._frames["more"][1] is more
    assert sorted(topic.topic for topic in told.topics) == ["more", "orders", "third"]
    assert told.full
    assert len(told.brokers) == 3


def test_b1_leadership_bytes_are_shared_where_receivers_are_equal() -> None:
    log = cluster()
    log.create_topic("all", (1, 2, 3), (2, 3, 1))
    image = log.image
    made = requests()
    everywhere = {topic_id_of("all"): (0, 1)}
    first = made.leader_and_isr(image, everywhere, is_init=False)
    assert made.leader_and_isr(image, dict(everywhere), is_init=False).body is first.body
    assert made.leader_and_isr(image, everywhere, is_init=True).body is not first.body
    log.create_topic("later", (1,))
    assert made.leader_and_isr(log.image, everywhere, is_init=False).body is not first.body


def test_b1_a_receiver_is_named_its_own_partitions_alone() -> None:
    image = cluster().image
    assert hosted_by(image, BrokerId(1)) == {topic_id_of("orders"): (0,), topic_id_of("more"): (0,)}
    assert hosted_by(image, BrokerId(2)) == {topic_id_of("orders"): (0, 1)}
    assert hosted_by(image, BrokerId(9)) == {}


def test_c5_a_topic_that_is_being_deleted_is_led_by_nobody() -> None:
    log = cluster()
    log.write_as_controller(TopicDeletionPending(name="orders", topic_id=topic_id_of("orders")))
    assert hosted_by(log.image, BrokerId(2)) == {}
    encoded = requests().leader_and_isr(log.image, {topic_id_of("orders"): (0,)}, is_init=False)
    assert not LeaderAndIsrRequest.FromString(encoded.body).topics


def test_b1_a_change_names_what_is_new_and_what_is_gone() -> None:
    image = cluster().image
    told = UpdateMetadataRequest.FromString(
        requests().update_metadata(image, frozenset({"more", "gone"})).body
    )
    assert not told.full
    assert [topic.topic for topic in told.topics] == ["more"]
    assert list(told.removed_topics) == ["gone"]
    assert [peer.broker_id for peer in told.brokers] == [1, 2, 3]
