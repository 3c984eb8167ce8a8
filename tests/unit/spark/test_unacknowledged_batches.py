"""What goes to which leader when, and again after what: the pure part of the writer's transport."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import ClusterUnavailable, RecordTooLarge, WriteRefused
from quorate.spark.writing.batch_builder import ProducerBatch
from quorate.spark.writing.partitioner import TargetPartition
from quorate.spark.writing.unacknowledged_batches import (
    FRAME_BYTES,
    IN_FLIGHT_MAX,
    BatchOutcome,
    UnacknowledgedBatches,
)
from quorate_proto.v1.errors_pb2 import (
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TOPIC_AUTHORIZATION_FAILED,
)
from tests.support.examples import examples

TIMEOUT_MS = 10_000
DONE = BatchOutcome(NONE)
MOVED = BatchOutcome(NOT_LEADER_OR_FOLLOWER, "somebody else leads")
GAP = BatchOutcome(OUT_OF_ORDER_SEQUENCE_NUMBER, "expected 0")


@dataclass
class Story:
    """An outbox, a clock, and who leads: "A" but where it says otherwise."""

    outbox: UnacknowledgedBatches = field(default_factory=lambda: UnacknowledgedBatches(TIMEOUT_MS))
    now_ms: int = 1_000
    leaders: dict[int, str | None] = field(default_factory=dict)
    numbers: int = 0

    def add(self, count: int = 1, partition: int = 0, size: int = 100) -> list[ProducerBatch]:
        batches = []
        for _ in range(count):
            self.numbers += 1
            target = TargetPartition(TopicPartition("t", partition), b"id", 0)
            batches.append(ProducerBatch(self.numbers, target, (bytes(size),), size, 0, count=10))
            self.outbox.add(batches[-1])
        return batches

    def frames(self) -> list[tuple[str, list[int]]]:
        """Leader and numbers of the batches of every frame that goes now."""
        return [(leader, [b.number for b in batches]) for leader, batches in self._frames()]

    def sent(self) -> list[ProducerBatch]:
        return [batch for _, batches in self._frames() for batch in batches]

    def _frames(self) -> list[tuple[str, list[ProducerBatch]]]:
        frames = self.outbox.frames(lambda tp: self.leaders.get(tp.partition, "A"), self.now_ms)
        return [(frame.leader, list(frame.batches)) for frame in frames]

    def answer(self, batch: ProducerBatch, outcome: BatchOutcome = DONE) -> None:
        self.outbox.answered(batch, outcome, "A", self.now_ms)

    def warm(self, partition: int = 0) -> None:
        """The first batch of a partition is acknowledged."""
        (batch,) = self.add(partition=partition)
        assert self.sent() == [batch]
        self.answer(batch)

    def later(self) -> None:
        """When the next retry is due."""
        due_ms = self.outbox.retry_at_ms()
        assert due_ms is not None
        self.now_ms = max(self.now_ms, due_ms)


def test_one_goes_first_then_as_many_as_a_broker_recognises() -> None:
    story = Story()
    batches = story.add(8)
    assert story.sent() == batches[:1]
    assert story.sent() == []
    story.answer(batches[0])
    assert story.sent() == batches[1 : 1 + IN_FLIGHT_MAX]
    assert story.sent() == []
    story.answer(batches[1])
    assert story.sent() == [batches[6]]
    for batch in batches[2:7]:
        story.answer(batch)
    assert story.sent() == [batches[7]]
    story.answer(batches[7])
    assert (story.outbox.open_bytes, story.outbox.records_written) == (0, 80)


def test_frames_go_to_the_leaders_with_many_partitions_each() -> None:
    story = Story(leaders={1: "B"})
    story.add(partition=0)
    story.add(partition=1)
    story.add(partition=2)
    assert story.frames() == [("A", [1, 3]), ("B", [2])]


def test_a_frame_is_not_much_larger_than_it_should_be() -> None:
    story = Story()
    for partition in range(5):
        story.add(partition=partition, size=FRAME_BYTES // 2)
    story.add(partition=5, size=3 * FRAME_BYTES)
    assert story.frames() == [("A", [1, 2]), ("A", [3, 4]), ("A", [5]), ("A", [6])]


def test_what_failed_goes_again_in_order_once_all_is_answered() -> None:
    story = Story()
    story.warm()
    batches = story.add(4)
    assert story.sent() == batches
    story.answer(batches[1], MOVED)
    story.answer(batches[0], MOVED)
    story.answer(batches[3], GAP)
    assert story.outbox.retry_at_ms() is None, "one is still under way"
    story.answer(batches[2], MOVED)
    assert story.outbox.failing() == [TopicPartition("t", 0)]
    assert story.sent() == [], "not at once"
    story.later()
    more = story.add(3)
    for batch in batches:
        assert story.sent() == [batch], "one at a time"
        story.answer(batch)
        assert story.outbox.failing() == []
    assert story.sent() == more


def test_a_stream_that_is_lost_takes_nothing_with_it() -> None:
    story = Story()
    story.warm(partition=0)
    story.warm(partition=1)
    mine, others = story.add(3, partition=0), story.add(1, partition=1)
    assert set(story.sent()) == {*mine, *others}
    story.outbox.lost(mine, "A: gone", story.now_ms)
    story.answer(others[0])
    story.later()
    assert story.sent() == mine[:1]


def test_a_batch_without_answer_goes_again() -> None:
    story = Story()
    (batch,) = story.add()
    story.sent()
    story.outbox.lost([batch], "A: gone", story.now_ms)
    story.later()
    assert story.sent() == [batch]
    story.answer(batch)
    assert (story.outbox.open_bytes, story.outbox.records_written) == (0, 10)


def test_a_gap_before_the_first_batch_is_a_loss() -> None:
    story = Story()
    story.warm()
    first, second = story.add(2)
    story.sent()
    with pytest.raises(WriteRefused, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        story.answer(first, GAP)
    story = Story()
    story.warm()
    first, second = story.add(2)
    story.sent()
    story.answer(first, MOVED)
    story.answer(second, GAP)


def test_a_new_leader_may_miss_what_the_old_one_has_not_answered_yet() -> None:
    story = Story()
    story.warm()
    first, second = story.add(2)
    assert story.frames() == [("A", [first.number, second.number])]
    story.leaders[0] = "B"
    (third,) = story.add(1)
    assert story.frames() == [("B", [third.number])]
    story.answer(third, GAP)
    story.answer(second, MOVED)
    story.answer(first, MOVED)
    story.later()
    assert story.sent() == [first]


@pytest.mark.parametrize(
    ("code", "error"),
    [(TOPIC_AUTHORIZATION_FAILED, WriteRefused), (MESSAGE_TOO_LARGE, RecordTooLarge)],
)
def test_what_cannot_heal_is_named(code: int, error: type[Exception]) -> None:
    story = Story()
    (batch,) = story.add(partition=3)
    story.sent()
    with pytest.raises(error, match=r"topic t partition 3 .* 10 records \(100 bytes\): .*: why"):
        story.answer(batch, BatchOutcome(code, "why"))


def test_pauses_grow_and_shrink_again() -> None:
    story = Story()
    (batch,) = story.add()
    pauses = []
    for _ in range(6):
        story.sent()
        story.answer(batch, BatchOutcome(NOT_ENOUGH_REPLICAS, "1 of 2"))
        before_ms = story.now_ms
        story.later()
        pauses.append(story.now_ms - before_ms)
    assert pauses == [100, 200, 400, 800, 1000, 1000]
    assert story.sent() == [batch]
    story.answer(batch)
    (other,) = story.add()
    assert story.sent() == [other]
    story.answer(other, MOVED)
    assert story.outbox.retry_at_ms() == story.now_ms + 100


def test_failing_for_too_long_names_partition_and_reason() -> None:
    story = Story()
    story.warm()
    (batch,) = story.add()
    story.sent()
    story.now_ms += 2 * TIMEOUT_MS  # Whoever writes may have been busy elsewhere: no failure yet.
    story.answer(batch, BatchOutcome(NOT_ENOUGH_REPLICAS, "1 of 2"))
    failure = None
    while failure is None:
        story.later()
        story.sent()
        try:
            story.answer(batch, BatchOutcome(NOT_ENOUGH_REPLICAS, "1 of 2"))
        except ClusterUnavailable as error:
            failure = str(error)
    assert "topic t partition 0 fails for 1" in failure
    assert "A: NOT_ENOUGH_REPLICAS: 1 of 2" in failure


def test_a_partition_without_leader_waits_for_one() -> None:
    story = Story(leaders={0: None})
    (batch,) = story.add()
    assert story.sent() == []
    story.later()
    story.leaders[0] = "B"
    assert story.frames() == [("B", [batch.number])]
    story = Story(leaders={0: None})
    story.add()
    story.sent()
    story.now_ms += TIMEOUT_MS
    with pytest.raises(ClusterUnavailable, match="no leader"):
        story.sent()


class Leader:
    """A broker with one partition: takes batches in sequence, forgets none, and may fail."""

    def __init__(self) -> None:
        self.log: list[int] = []

    def append(self, batch: ProducerBatch) -> BatchOutcome:
        if batch.number in self.log[-IN_FLIGHT_MAX:]:
            return DONE
        if batch.number != len(self.log) + 1 and self.log:
            return GAP
        self.log.append(batch.number)
        return DONE


LOST = BatchOutcome(-1)
"""No answer: the stream broke."""


@dataclass
class Network:
    """Carries batches to the leader and answers back, late and in any order."""

    story: Story
    leader: Leader = field(default_factory=Leader)
    answers: deque[tuple[ProducerBatch, BatchOutcome]] = field(default_factory=deque)

    def send(self, fate_of: Callable[[], str]) -> None:
        if self.story.outbox.retry_at_ms() is not None:
            self.story.later()
        for batch in self.story.sent():
            fate = fate_of()
            outcome = self.leader.append(batch) if fate in ("fine", "answer lost") else MOVED
            self.answers.append((batch, LOST if "lost" in fate else outcome))

    def receive(self, count: int, skip: Callable[[], int] = lambda: 0) -> None:
        for _ in range(min(count, len(self.answers))):
            self.answers.rotate(-skip())
            batch, outcome = self.answers.popleft()
            if outcome == LOST:
                self.story.outbox.lost([batch], "gone", self.story.now_ms)
            else:
                self.story.answer(batch, outcome)


FATES = ["fine", "fine", "fine", "refused", "frame lost", "answer lost"]


@given(st.data(), st.integers(1, 25))
@settings(max_examples=examples(50))
def test_d2_whatever_fails_every_batch_is_written_once_and_in_order(
    data: st.DataObject, count: int
) -> None:
    story = Story(outbox=UnacknowledgedBatches(10**9))
    network = Network(story)
    story.add(count)
    for _ in range(count):
        network.send(lambda: data.draw(st.sampled_from(FATES)))
        network.receive(data.draw(st.integers(0, 3)), lambda: data.draw(st.integers(0, 2)))
    while story.outbox.open_bytes:
        network.send(lambda: "fine")
        network.receive(10)
    assert network.leader.log == list(range(1, count + 1))
    assert story.outbox.records_written == 10 * count
