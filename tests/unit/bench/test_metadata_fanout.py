"""What the fan-out benchmark sends is a cluster as large as it says."""

from bench.metadata_fanout import PARTITIONS_PER_TOPIC, image_of
from broker.control.metadata_cache import MetadataCache
from broker.controller.control_requests import ControlRequests, hosted_by
from broker.controller.managers.office import Office
from metadata_log.types import BrokerId, ControllerEpoch
from quorate_proto.v1 import control_pb2


def test_all_partitions_are_told_to_brokers_that_host_none_of_them() -> None:
    image = image_of([10_001, 10_002], topics=3)
    requests = ControlRequests(Office(BrokerId(1), ControllerEpoch(1)), 1_000)
    told = control_pb2.UpdateMetadataRequest.FromString(requests.full_metadata(image).body)
    cache = MetadataCache()
    cache.update(told)
    assert sum(len(topic.partitions) for topic in cache.topics.values()) == 3 * PARTITIONS_PER_TOPIC
    assert not any(hosted_by(image, broker_id) for broker_id in image.brokers)
