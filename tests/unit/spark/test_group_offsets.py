"""Committing to a group: wherever its coordinator is, and what is refused for good."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from quorate.common.topic_partition import TopicPartition
from quorate.spark.cluster_client import ClusterClient
from quorate.spark.committing.group_offset_committer import GroupOffsetCommitter, ReachedOffset
from quorate.spark.errors import CallRefused, ClusterUnavailable
from quorate.spark.options.read_options import GroupCommits
from quorate.spark.retries import RetryPolicy
from quorate_proto.v1.errors_pb2 import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    NON_EMPTY_GROUP,
    NOT_COORDINATOR,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from quorate_proto.v1.groups_pb2 import (
    CommitOffsetsRequest,
    CommitOffsetsResponse,
    CommitOutcome,
    PartOfRead,
)
from tests.support.fake_range_cluster import FakeRangeCluster

ORDERS = TopicPartition("orders", 3)
REACHED = [ReachedOffset(ORDERS, b"i" * 16, 42)]


@dataclass
class Committing:
    """One who commits to group ``lake``; pauses are noted, not slept."""

    cluster: FakeRangeCluster
    client: ClusterClient
    pauses: list[float] = field(default_factory=list)
    on_pause: Callable[[], None] = lambda: None

    @property
    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(3, 100, self._pause)

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause()

    def group(self, *, may_go_back: bool = False) -> GroupOffsetCommitter:
        return GroupOffsetCommitter(
            self.client, GroupCommits("lake", may_go_back), self.retry_policy
        )


@pytest.fixture
def committing() -> Iterator[Committing]:
    with (
        FakeRangeCluster() as cluster,
        ClusterClient(cluster.bootstrap, RetryPolicy(0, 1)) as client,
    ):
        yield Committing(cluster, client)


def answers(*responses: CommitOffsetsResponse) -> Callable[..., CommitOffsetsResponse | None]:
    """The coordinator's first answers."""
    remaining = iter(responses)
    return lambda request: next(remaining, None)


@pytest.mark.parametrize("coordinator", [0, 1])
def test_the_coordinator_is_found_through_any_broker(
    committing: Committing, coordinator: int
) -> None:
    committing.cluster.coordinator = coordinator
    group = committing.group(may_go_back=True)
    group.commit(REACHED)
    group.commit(REACHED)
    for request in committing.cluster.commits:
        assert (request.group_id, request.may_go_back) == ("lake", True)
        (one,) = request.offsets
        assert (one.topic, one.partition, one.offset, one.topic_id) == ("orders", 3, 42, b"i" * 16)
    assert committing.cluster.committed() == [{"orders-3": 42}] * 2
    assert committing.pauses == []


def test_a_check_commits_nothing(committing: Committing) -> None:
    committing.group().check({ORDERS: b"i" * 16})
    (request,) = committing.cluster.commits
    assert request.validate_only
    assert not request.may_go_back


def test_it_is_looked_for_again_when_it_moves(committing: Committing) -> None:
    group = committing.group()
    group.commit(REACHED)
    committing.cluster.coordinator = 1
    group.commit(REACHED)
    assert len(committing.cluster.committed()) == 2
    assert committing.pauses == []


def test_a_coordinator_that_is_killed_is_replaced(committing: Committing) -> None:
    committing.cluster.coordinator = 1
    group = committing.group()
    group.commit(REACHED)

    def elect() -> None:
        committing.cluster.coordinator = 0

    committing.on_pause = elect
    committing.cluster.kill(1)
    group.commit(REACHED)
    assert len(committing.cluster.committed()) == 2
    assert committing.pauses


@pytest.mark.parametrize(
    "code", [COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR]
)
def test_what_passes_is_waited_for(committing: Committing, code: int) -> None:
    passing = CommitOffsetsResponse(error_code=code)
    committing.cluster.before_commit = answers(passing, passing)
    committing.group().commit(REACHED)
    assert committing.cluster.committed() == [{"orders-3": 42}]
    assert committing.pauses == [0.1, 0.2]


def test_patience_ends(committing: Committing) -> None:
    response = CommitOffsetsResponse(
        error_code=COORDINATOR_LOAD_IN_PROGRESS, error_message="its log is being read"
    )
    committing.cluster.before_commit = lambda request: response
    with pytest.raises(
        ClusterUnavailable,
        match=r"committing offsets of group lake failed 4 times in a row: "
        r"COORDINATOR_LOAD_IN_PROGRESS: its log",
    ):
        committing.group().commit(REACHED)


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (
            CommitOffsetsResponse(
                error_code=NON_EMPTY_GROUP, error_message="group 'lake' has live members (c at h)"
            ),
            r"option commitGroup: group 'lake' has live members \(c at h\)",
        ),
        (
            CommitOffsetsResponse(error_code=GROUP_AUTHORIZATION_FAILED, error_message="not READ"),
            "offsets of group lake was refused: GROUP_AUTHORIZATION_FAILED: not READ",
        ),
        (
            CommitOffsetsResponse(
                outcomes=[
                    CommitOutcome(error_code=TOPIC_AUTHORIZATION_FAILED, error_message="not orders")
                ]
            ),
            "TOPIC_AUTHORIZATION_FAILED: not orders",
        ),
    ],
)
def test_what_does_not_pass_is_refused(
    committing: Committing, response: CommitOffsetsResponse, message: str
) -> None:
    committing.cluster.before_commit = lambda request: response
    with pytest.raises(CallRefused, match=message):
        committing.group().commit(REACHED)
    assert committing.pauses == []


def test_a_broker_of_before_is_told_by_name(committing: Committing) -> None:
    committing.cluster.knows_groups = False
    with pytest.raises(CallRefused, match=r"the broker at 127\.0\.0\.1:\d+ is too old for it"):
        committing.group().commit(REACHED)
    assert committing.pauses == []


def test_a_topic_that_is_gone_is_warned_of(
    committing: Committing, caplog: pytest.LogCaptureFixture
) -> None:
    gone = CommitOutcome(
        error_code=UNKNOWN_TOPIC_OR_PARTITION, error_message="orders-3 does not exist"
    )
    committing.cluster.before_commit = lambda request: CommitOffsetsResponse(outcomes=[gone])
    with caplog.at_level(logging.WARNING):
        committing.group().commit(REACHED)
    assert "group lake: orders-3 does not exist; its offset is not committed" in caplog.text


def test_a_part_says_how_many_are_missing(committing: Committing) -> None:
    asked: list[CommitOffsetsRequest] = []

    def take(request: CommitOffsetsRequest) -> CommitOffsetsResponse:
        asked.append(request)
        return CommitOffsetsResponse(parts_missing=2)

    committing.cluster.before_commit = take
    part = PartOfRead(read_id=b"r", number=1, count=4)
    assert committing.group().commit_part(REACHED, part) == 2
    assert asked[0].part == part
