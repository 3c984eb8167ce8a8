"""No broker gets more replicas than ``max.broker.partitions`` allows (issue 17)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.controller.managers import placement
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.partition_count_manager import add_partitions
from quorate.broker.controller.managers.placement import (
    NewIds,
    PlacementStart,
    ReplicaLimit,
    replica_counts,
)
from quorate.broker.controller.managers.topic_manager import (
    TopicDecision,
    TopicDefaults,
    create_topics,
    removals,
)
from quorate.common.types import BrokerId, ControllerEpoch, TopicId
from quorate.metadata_log.image import Image
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder

TENURE = ControllerTenure(BrokerId(1), ControllerEpoch(1))
ONE, TWO = BrokerId(1), BrokerId(2)


class Cluster:
    """Brokers 1 and 2, a topic of 3 partitions on both, and a limit."""

    def __init__(self, most: int) -> None:
        self.log = MetadataLogBuilder()
        for broker_id in (1, 2):
            self.log.start_broker(broker_id)
        self.log.elect_controller(1)
        self.log.admit_all()
        self.log.create_topic("old", (1, 2), (2, 1), (1, 2))
        self.limit = ReplicaLimit(lambda: most)
        self._drawn = 0

    def create(self, *topics: tuple[str, int]) -> list[TopicDecision]:
        return create_topics(
            self.log.image,
            [admin_pb2.NewTopic(name=n, num_partitions=p, replication_factor=1) for n, p in topics],
            tenure=TENURE,
            defaults=lambda: TopicDefaults(1, 1),
            draw=self._draw,
            limit=self.limit,
        )

    def add(self, name: str, count: int) -> TopicDecision:
        wanted = [admin_pb2.NewPartitions(name=name, count=count)]
        (decision,) = add_partitions(
            self.log.image,
            wanted,
            tenure=TENURE,
            draw=lambda: PlacementStart(0, 0),
            limit=self.limit,
        )
        return decision

    def write(self, decisions: Sequence[TopicDecision]) -> None:
        operations = [one.operation for one in decisions if one.operation is not None]
        if operations:
            assert self.log.transact(*operations, atomic=False).ok

    def _draw(self) -> NewIds:
        self._drawn += 1
        return NewIds(TopicId(f"id {self._drawn:13}".encode()), PlacementStart(0, 0))


def codes(decisions: Sequence[TopicDecision]) -> list[int]:
    return [one.result.error_code for one in decisions]


def test_a_topic_that_would_exceed_the_limit_is_refused_and_says_what_to_do() -> None:
    cluster = Cluster(most=5)
    (decision,) = cluster.create(("new", 5))
    assert decision.operation is None
    assert decision.result.error_code == errors_pb2.POLICY_VIOLATION
    assert decision.result.error_message == (
        "topic 'new': broker 1 would hold 6 partitions, and max.broker.partitions allows 5: "
        "delete some, add brokers, or raise the limit"
    )
    assert codes(cluster.create(("new", 4))) == [errors_pb2.NONE]


def test_topics_of_one_request_count_together_and_a_refused_one_does_not() -> None:
    cluster = Cluster(most=5)
    refused = errors_pb2.POLICY_VIOLATION
    assert codes(cluster.create(("a", 2), ("b", 6), ("c", 2), ("d", 1))) == [0, refused, 0, refused]


def test_what_was_only_validated_takes_no_room() -> None:
    cluster = Cluster(most=5)
    for _ in range(5):
        assert codes(cluster.create(("a", 4))) == [errors_pb2.NONE]


def test_partitions_that_are_added_count_from_the_time_they_are_accepted() -> None:
    cluster = Cluster(most=5)
    cluster.write([cluster.add("old", 4)])
    assert replica_counts(cluster.log.image) == {ONE: 4, TWO: 4}
    assert codes([cluster.add("old", 6)]) != [errors_pb2.NONE]
    assert codes(cluster.create(("a", 3))) == [errors_pb2.POLICY_VIOLATION]
    assert codes(cluster.create(("a", 2))) == [errors_pb2.NONE]


def test_an_addition_that_would_exceed_the_limit_is_refused() -> None:
    cluster = Cluster(most=5)
    decision = cluster.add("old", 6)
    assert (decision.operation, decision.result.error_code) == (None, errors_pb2.POLICY_VIOLATION)
    assert cluster.add("old", 5).operation is not None


def test_deleted_partitions_make_room() -> None:
    cluster = Cluster(most=5)
    cluster.write(cluster.create(("a", 4)))
    assert codes(cluster.create(("b", 1))) == [errors_pb2.POLICY_VIOLATION]
    cluster.log.delete_topic("a")
    assert cluster.log.transact(*removals(cluster.log.image, TENURE, ["a"])).ok
    assert codes(cluster.create(("b", 4))) == [errors_pb2.NONE]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets the offset of each image whose replicas are counted."""
    offsets: list[int] = []

    def count(image: Image) -> object:
        offsets.append(image.offset)
        return replica_counts(image)

    monkeypatch.setattr(placement, "replica_counts", count)
    return offsets


def test_all_replicas_are_counted_only_near_the_limit_and_once_per_image(
    counted: list[int],
) -> None:
    cluster = Cluster(most=1_000)
    for number in range(20):
        cluster.write(cluster.create((f"topic-{number}", 10)))
    assert len(counted) == 1, "of an unknown cluster"
    for number in range(20):
        assert codes(cluster.create((f"large-{number}", 5_000))) == [errors_pb2.POLICY_VIOLATION]
    assert len(counted) == 2, "what is refused changes nothing"


def test_after_a_new_count_many_more_are_accepted_until_the_next(counted: list[int]) -> None:
    cluster = Cluster(most=10 * placement.RECOUNT_AFTER)
    cluster.write(cluster.create(("many", placement.RECOUNT_AFTER)))
    for number in range(5):
        cluster.write(cluster.create((f"topic-{number}", 10)))
    assert len(counted) == 2, "of an unknown cluster, and after the many"


@given(
    most=st.integers(3, 30),
    requests=st.lists(
        st.tuples(st.lists(st.integers(1, 12), min_size=1, max_size=3), st.booleans()), max_size=12
    ),
)
def test_the_kept_count_decides_as_a_new_one(
    most: int, requests: list[tuple[list[int], bool]]
) -> None:
    cluster = Cluster(most=most)
    for number, (sizes, is_written) in enumerate(requests):
        topics = [(f"topic-{number}-{place}", size) for place, size in enumerate(sizes)]
        decisions = cluster.create(*topics)
        kept, cluster.limit = cluster.limit, ReplicaLimit(lambda: most)
        assert codes(cluster.create(*topics)) == codes(decisions)
        cluster.limit = kept
        if is_written:
            cluster.write(decisions)
        assert max(replica_counts(cluster.log.image).values()) <= most


def test_a_raised_limit_holds_at_once_and_a_lowered_one_after_some_replicas() -> None:
    cluster, limits = Cluster(most=5), [5]
    cluster.limit = ReplicaLimit(lambda: limits[0])
    assert codes(cluster.create(("a", 8))) == [errors_pb2.POLICY_VIOLATION]
    limits[0] = 2 * placement.RECOUNT_AFTER
    cluster.write(cluster.create(("a", 8)))
    limits[0] = 5
    cluster.write(cluster.create(("b", placement.RECOUNT_AFTER)))
    assert codes(cluster.create(("c", 1))) == [errors_pb2.POLICY_VIOLATION]


def test_there_is_no_limit_without_one() -> None:
    cluster = Cluster(most=1)
    cluster.limit = ReplicaLimit()
    assert codes(cluster.create(("a", 100))) == [errors_pb2.NONE]
