"""What the fan-out benchmark encodes is as much as it says, and differs where a topic changed."""

from bench._fan_out import PARTITIONS_PER_TOPIC
from bench.metadata_fanout import encode, image_of
from quorate.broker.controller.channels.control_requests import ControlRequestBuilder
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.common.types import BrokerId, ControllerEpoch
from quorate_proto.v1 import control_pb2


def test_all_partitions_are_told() -> None:
    requests = ControlRequestBuilder(ControllerTenure(BrokerId(1), ControllerEpoch(1)), 1_000)
    body = requests.full_metadata(image_of(topics=3)).body
    cache = MetadataCache()
    cache.update(control_pb2.UpdateMetadataRequest.FromString(body))
    assert sum(len(topic.partitions) for topic in cache.topics.values()) == 3 * PARTITIONS_PER_TOPIC


def test_encoding_is_measured_for_topics_with_leaders() -> None:
    figures = encode(topics=30)
    assert 11 <= figures["bytes per partition"] <= 12
    assert figures["changed ms"] > 0
