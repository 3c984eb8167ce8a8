"""What the fan-out benchmark encodes is as much as it says, and differs where a topic changed."""

from bench.metadata_fanout import PARTITIONS_PER_TOPIC, encode, image_of
from broker.control.metadata_cache import MetadataCache
from broker.controller.control_requests import ControlRequests
from broker.controller.managers.office import Office
from metadata_log.types import BrokerId, ControllerEpoch
from quorate_proto.v1 import control_pb2


def test_all_partitions_are_told() -> None:
    requests = ControlRequests(Office(BrokerId(1), ControllerEpoch(1)), 1_000)
    body = requests.full_metadata(image_of(topics=3)).body
    cache = MetadataCache()
    cache.update(control_pb2.UpdateMetadataRequest.FromString(body))
    assert sum(len(topic.partitions) for topic in cache.topics.values()) == 3 * PARTITIONS_PER_TOPIC


def test_encoding_is_measured_for_topics_with_leaders() -> None:
    figures = encode(topics=30)
    assert 11 <= figures["bytes per partition"] <= 12
    assert figures["changed ms"] > 0
