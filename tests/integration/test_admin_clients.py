"""Administration by unmodified clients: it has the effects and the answers that Kafka's has."""

import warnings
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from tests.support.kafka_clients import PATIENCE_S, Confluent

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    return module_quorate_cluster(brokers=2)


@pytest.fixture
def admin(cluster: RunningCluster) -> Iterator[AdminClient]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(admin: AdminClient, topic: str, replicas: int = 2) -> None:
    for created in admin.create_topics([NewTopic(topic, 1, replicas)]).values():
        created.result(PATIENCE_S)


def test_a_request_finds_the_effect_of_the_one_before_on_its_connection(
    cluster: RunningCluster, admin: AdminClient
) -> None:
    """Decision 56: librdkafka sends both to the leader of the partition, without a pause."""
    create(admin, "deleted")
    Confluent(cluster.bootstrap).produce("deleted", {0: [b"x"] * 50})
    place = TopicPartition("deleted", 0)
    for offset in range(1, 40):
        deleted = admin.delete_records([TopicPartition("deleted", 0, offset)])
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        listed = admin.list_offsets({place: earliest})
        (start,) = [future.result(PATIENCE_S).offset for future in listed.values()]
        (outcome,) = [future.result(PATIENCE_S) for future in deleted.values()]
        assert (outcome.low_watermark, start) == (offset, offset)
