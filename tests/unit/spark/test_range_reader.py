"""Reading a range to its end, whatever happens to its leader on the way."""

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import grpc
import pyarrow as pa
import pytest

from quorate.client.security import ClientSecurity, Securities
from quorate.common.topic_partition import TopicPartition
from quorate.spark.cluster_client import ClusterClient
from quorate.spark.errors import (
    CallRefused,
    ClusterUnavailable,
    CorruptBatch,
    RangeUnavailable,
    UnknownTopic,
)
from quorate.spark.known_topics import Replica
from quorate.spark.offset_ranges import LATEST, OffsetQuestion, OffsetRange
from quorate.spark.reached_brokers import SILENT_SECONDS, ReachedBrokers
from quorate.spark.reading.frame_stream import FrameStream, split_frame
from quorate.spark.reading.range_reader import RangePolicy, RangeReader
from quorate.spark.retries import RetryPolicy
from quorate_proto.v1.errors_pb2 import (
    NOT_LEADER_OR_FOLLOWER,
    POLICY_VIOLATION,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from quorate_proto.v1.replication_pb2 import RangeHeader
from tests.support.fake_range_cluster import EndStream, FakeRangeCluster, FrameAbout
from tests.support.record_batches import Record, encode_batch

ORDERS = TopicPartition("orders", 0)
SCHEMA = pa.schema([("offset", pa.int64())])


@dataclass
class Reading:
    """A reader of orders-0 over the fake cluster; pauses are noted, not slept."""

    cluster: FakeRangeCluster
    fail_on_data_loss: bool = True
    frame_timeout_ms: int = 10_000
    silence_ms: int = 2_000
    pauses: list[float] = field(default_factory=list)
    on_pause: Callable[[], None] = lambda: None
    reached: ReachedBrokers = field(default_factory=ReachedBrokers)
    """Shared by the tasks of a process."""

    @property
    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(3, 100, self._pause)

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause()

    def batches(self, start: int, end: int, topic_id: bytes = b"") -> Iterator[pa.RecordBatch]:
        policy = RangePolicy(
            self.fail_on_data_loss, self.frame_timeout_ms, self.retry_policy, self.silence_ms
        )
        with ClusterClient(
            self.cluster.bootstrap, self.retry_policy, reached=self.reached
        ) as client:
            client.refresh([ORDERS])
            offsets = OffsetRange(ORDERS, start, end, topic_id)
            yield from RangeReader(client, offsets, SCHEMA, policy).batches()

    def offsets(self, start: int, end: int, topic_id: bytes = b"") -> list[int]:
        batches = self.batches(start, end, topic_id)
        return [o for batch in batches for o in batch.column("offset").to_pylist()]


@pytest.fixture
def cluster() -> Iterator[FakeRangeCluster]:
    with FakeRangeCluster() as running:
        running.add("orders", 0, [[Record(n) for n in range(b, b + 10)] for b in range(0, 100, 10)])
        yield running


def fail_once_at(index: int, act: Callable[[], RangeHeader | None]) -> Callable[..., object]:
    """A hook that acts at the ``index``-th frame, the first time one is about to be sent."""
    calls = itertools.count()

    def before_frame(about: FrameAbout) -> RangeHeader | None:
        if about.index == index and next(calls) == 0:
            return act()
        return None

    return before_frame


@pytest.mark.parametrize(
    ("start", "end"), [(0, 100), (0, 1), (5, 6), (9, 11), (10, 20), (15, 95), (99, 100), (50, 50)]
)
def test_d2_reads_exactly_the_range(cluster: FakeRangeCluster, start: int, end: int) -> None:
    assert Reading(cluster).offsets(start, end) == list(range(start, end))


def test_d2_goes_on_at_the_new_leader_where_it_was(cluster: FakeRangeCluster) -> None:
    def move() -> RangeHeader:
        cluster.logs[ORDERS].leader = 1
        return RangeHeader(error_code=NOT_LEADER_OR_FOLLOWER, leader=1)

    cluster.before_frame = fail_once_at(3, move)  # type: ignore[assignment]
    reading = Reading(cluster)
    assert reading.offsets(5, 95) == list(range(5, 95))
    assert cluster.reads == [(0, 5), (1, 30)]
    assert reading.pauses == [0.1]


def test_d2_goes_on_after_a_broken_stream(cluster: FakeRangeCluster) -> None:
    def break_stream() -> RangeHeader:
        raise RuntimeError("the broker fails")

    cluster.before_frame = fail_once_at(2, break_stream)  # type: ignore[assignment]
    assert Reading(cluster).offsets(0, 100) == list(range(100))
    assert cluster.reads == [(0, 0), (0, 20)]


def test_d2_goes_on_when_the_leader_dies(cluster: FakeRangeCluster) -> None:
    cluster.logs[ORDERS].leader = 1
    batches = Reading(cluster).batches(0, 100)
    first = next(batches)
    cluster.logs[ORDERS].leader = 0
    cluster.kill(1)
    rest = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert first.column("offset").to_pylist() + rest == list(range(100))


def test_a_silent_leader_is_asked_again(cluster: FakeRangeCluster) -> None:
    heard = threading.Event()

    def hang() -> None:
        heard.wait(30)

    cluster.before_frame = fail_once_at(1, hang)  # type: ignore[assignment]
    reading = Reading(cluster, frame_timeout_ms=500, on_pause=heard.set)
    assert reading.offsets(0, 100) == list(range(100))
    assert reading.pauses
    assert cluster.reads[:2] == [(0, 0), (0, 10)]


def test_d2_a_silent_leader_that_was_deposed_is_left_at_once(cluster: FakeRangeCluster) -> None:
    """A process that was stopped keeps its connections: no error would ever come from it."""
    left, in_time = threading.Event(), []

    def hang() -> None:
        cluster.logs[ORDERS].leader = 1
        in_time.append(left.wait(30))

    cluster.before_frame = fail_once_at(1, hang)  # type: ignore[assignment]
    reading = Reading(cluster, frame_timeout_ms=60_000, silence_ms=100, on_pause=left.set)
    assert reading.offsets(0, 100) == list(range(100))
    assert in_time == [True]
    assert cluster.reads == [(0, 0), (1, 10)]


def test_a_silent_leader_that_still_leads_is_waited_for(cluster: FakeRangeCluster) -> None:
    asked = threading.Event()

    def be_busy() -> None:
        cluster.on_describe = asked.set
        asked.wait(30)

    cluster.before_frame = fail_once_at(1, be_busy)  # type: ignore[assignment]
    reading = Reading(cluster, frame_timeout_ms=20_000, silence_ms=100)
    assert reading.offsets(0, 100) == list(range(100))
    assert cluster.reads == [(0, 0)]
    assert reading.pauses == []


@pytest.fixture
def cut_off(cluster: FakeRangeCluster) -> Iterator[FakeRangeCluster]:
    """The leader, broker 0, goes on leading, but after a frame this host no longer reaches it."""
    cluster.logs[ORDERS].isr = (0, 1)
    cluster.logs[ORDERS].leader_epoch = 3
    healed = threading.Event()

    def before_frame(about: FrameAbout) -> None:
        if about.broker_id == 0 and about.index == 1:
            cluster.unreachable.add(0)
            healed.wait(30)

    cluster.before_frame = before_frame
    yield cluster
    healed.set()


def test_d2_a_follower_serves_while_this_host_does_not_reach_the_leader(
    cut_off: FakeRangeCluster,
) -> None:
    reading = Reading(cut_off, frame_timeout_ms=60_000, silence_ms=100)
    assert reading.offsets(0, 100) == list(range(100))
    assert cut_off.reads == [(0, 0), (1, 10)]
    assert reading.pauses == [0.1]


def test_the_next_task_of_a_process_asks_a_follower_at_once(cut_off: FakeRangeCluster) -> None:
    reading = Reading(cut_off, frame_timeout_ms=60_000, silence_ms=100)
    reading.offsets(0, 100)
    assert reading.offsets(20, 40) == list(range(20, 40))
    assert cut_off.reads[2:] == [(1, 20)]


def test_a_link_that_refuses_is_as_good_as_cut(cut_off: FakeRangeCluster) -> None:
    """As a firewall does that rejects."""

    def before_frame(about: FrameAbout) -> None:
        if about.broker_id == 0:
            raise RuntimeError("refused")

    cut_off.before_frame = before_frame
    cut_off.unreachable.add(0)
    assert Reading(cut_off).offsets(0, 100) == list(range(100))
    assert cut_off.reads == [(0, 0), (1, 0)]


def test_a_follower_that_cannot_serve_is_left_for_the_leader(cut_off: FakeRangeCluster) -> None:
    """One behind the leader's high watermark, or of a release that serves leaders only."""
    refused: list[int] = []

    def before_frame(about: FrameAbout) -> RangeHeader | None:
        if about.broker_id == 1:
            refused.append(about.request.start_offset)
            return RangeHeader(error_code=NOT_LEADER_OR_FOLLOWER)
        return None

    cut_off.before_frame = before_frame
    reached = ReachedBrokers()
    with ClusterClient(cut_off.bootstrap, Reading(cut_off).retry_policy, reached=reached) as client:
        client.refresh([ORDERS])
        reached.note_silent(str(client.leader_of(ORDERS)))
    assert Reading(cut_off, reached=reached).offsets(0, 100) == list(range(100))
    assert refused == [0]
    assert cut_off.reads == [(1, 0), (0, 0)]


def test_a_silent_broker_is_passed_over_for_a_while() -> None:
    now_s = 0.0
    here = "bootstrap", Securities()
    reached = ReachedBrokers(lambda: now_s)
    reached.note_found(here, ["a", "b", "c"])
    reached.note_silent("a")
    assert reached.silent_last(reached.found_behind(here)) == ["b", "c", "a"]
    now_s = SILENT_SECONDS
    assert reached.silent_last(reached.found_behind(here)) == ["a", "b", "c"]
    assert reached.found_behind(("elsewhere", Securities())) == []


def test_a_client_with_another_user_looks_for_brokers_by_itself() -> None:
    """Those that it bootstraps from say that its password is wrong, and of which user."""
    reached = ReachedBrokers()
    reached.note_found(("bootstrap", Securities()), ["a"])
    other = Securities(grpc=ClientSecurity(protocol="SASL_SSL", username="u", password="guessed"))
    assert reached.found_behind(("bootstrap", other)) == []


def test_without_a_follower_in_sync_the_leader_is_asked_again(cluster: FakeRangeCluster) -> None:
    cluster.logs[ORDERS].isr = (0,)
    with ClusterClient(cluster.bootstrap, RetryPolicy(3, 100), reached=ReachedBrokers()) as client:
        client.refresh([ORDERS])
        leader = client.leader_of(ORDERS)
        assert leader is not None
        cluster.unreachable.add(0)
        assert not client.answers(leader)
        assert client.replica_to_read(ORDERS) == Replica(leader, leads=True, leader_epoch=0)


def test_the_budget_of_retries_ends_with_a_message(cluster: FakeRangeCluster) -> None:
    cluster.before_frame = lambda about: RangeHeader(error_code=NOT_LEADER_OR_FOLLOWER)
    reading = Reading(cluster)
    with pytest.raises(ClusterUnavailable, match=r"orders-0 \[0, 100\) at offset 0 .* 4 times"):
        reading.offsets(0, 100)
    assert reading.pauses == [0.1, 0.2, 0.4]


def test_without_a_leader_it_waits_for_one(cluster: FakeRangeCluster) -> None:
    cluster.logs[ORDERS].leader = -1

    def elect() -> None:
        cluster.logs[ORDERS].leader = 1

    assert Reading(cluster, on_pause=elect).offsets(0, 100) == list(range(100))


def test_a_lagging_high_watermark_of_a_new_leader_is_waited_for(cluster: FakeRangeCluster) -> None:
    log = cluster.logs[ORDERS]
    log.high_watermark = 40

    def catch_up() -> None:
        log.high_watermark = 100

    assert Reading(cluster, on_pause=catch_up).offsets(0, 100) == list(range(100))


def test_a_log_that_has_become_shorter_is_data_loss(cluster: FakeRangeCluster) -> None:
    cluster.logs[ORDERS].high_watermark = 40
    with pytest.raises(RangeUnavailable, match=r"\[0, 100\) of orders-0 .* holds \[0, 40\)"):
        Reading(cluster).offsets(0, 100)
    assert Reading(cluster, fail_on_data_loss=False).offsets(0, 100) == list(range(40))


def test_retention_during_the_read_is_data_loss(cluster: FakeRangeCluster) -> None:
    cluster.logs[ORDERS].log_start = 30
    with pytest.raises(RangeUnavailable, match=r"\[0, 100\) of orders-0 .* holds \[30, 100\)"):
        Reading(cluster).offsets(0, 100)
    assert Reading(cluster, fail_on_data_loss=False).offsets(0, 100) == list(range(30, 100))
    assert Reading(cluster, fail_on_data_loss=False).offsets(0, 20) == []


def test_offsets_that_compaction_removed_are_no_error(cluster: FakeRangeCluster) -> None:
    log = cluster.logs[ORDERS]
    del log.batches[8:]
    assert Reading(cluster).offsets(0, 100) == list(range(80))


@pytest.mark.parametrize("index", [0, 3])
def test_d2_a_stream_that_ends_early_is_not_the_end(cluster: FakeRangeCluster, index: int) -> None:
    def end() -> RangeHeader:
        raise EndStream

    cluster.before_frame = fail_once_at(index, end)  # type: ignore[assignment]
    assert Reading(cluster).offsets(0, 100) == list(range(100))
    assert cluster.reads == [(0, 0), (0, index * 10)]


def test_progress_renews_the_budget_of_retries(cluster: FakeRangeCluster) -> None:
    def before_frame(about: FrameAbout) -> None:
        if about.index == 1:
            raise RuntimeError("every stream breaks after one frame")

    cluster.before_frame = before_frame
    reading = Reading(cluster)
    assert reading.offsets(0, 100) == list(range(100))
    assert reading.pauses == [0.1] * 9


def test_a_topic_created_anew_is_noticed(cluster: FakeRangeCluster) -> None:
    def recreate() -> RangeHeader:
        cluster.topic_ids["orders"] = b"another id" + bytes(6)
        return RangeHeader(error_code=UNKNOWN_TOPIC_OR_PARTITION)

    planned = cluster.topic_ids["orders"]
    cluster.before_frame = fail_once_at(3, recreate)  # type: ignore[assignment]
    with pytest.raises(UnknownTopic, match=r"orders was deleted and created anew.* offset 30\."):
        Reading(cluster).offsets(0, 100, topic_id=planned)
    recreated = Reading(cluster, fail_on_data_loss=False)
    assert recreated.offsets(0, 100, topic_id=planned) == []


def test_a_topic_deleted_during_the_read_is_data_loss(cluster: FakeRangeCluster) -> None:
    planned = cluster.topic_ids["orders"]

    def delete() -> RangeHeader:
        del cluster.topic_ids["orders"]
        return RangeHeader(error_code=UNKNOWN_TOPIC_OR_PARTITION)

    cluster.before_frame = fail_once_at(3, delete)  # type: ignore[assignment]
    reading = Reading(cluster, fail_on_data_loss=False)
    assert reading.offsets(0, 100, topic_id=planned) == list(range(30))
    assert reading.pauses == [0.1, 0.2, 0.4]
    with pytest.raises(UnknownTopic, match=r"orders-0 is no longer there .*failOnDataLoss=false"):
        Reading(cluster).offsets(0, 100, topic_id=planned)


def test_a_partition_that_was_removed_is_data_loss(cluster: FakeRangeCluster) -> None:
    def remove() -> RangeHeader:
        cluster.logs[TopicPartition("orders", 0)].leader = 7
        cluster.removed.add(ORDERS)
        return RangeHeader(error_code=UNKNOWN_TOPIC_OR_PARTITION)

    cluster.before_frame = fail_once_at(3, remove)  # type: ignore[assignment]
    assert Reading(cluster, fail_on_data_loss=False).offsets(0, 100) == list(range(30))


def test_a_topic_that_nobody_knows_for_a_while_is_waited_for(cluster: FakeRangeCluster) -> None:
    topic_id = cluster.topic_ids["orders"]

    def forget() -> RangeHeader:
        del cluster.topic_ids["orders"]
        return RangeHeader(error_code=UNKNOWN_TOPIC_OR_PARTITION)

    def learn() -> None:
        cluster.topic_ids["orders"] = topic_id

    cluster.before_frame = fail_once_at(3, forget)  # type: ignore[assignment]
    reading = Reading(cluster, on_pause=learn)
    assert reading.offsets(0, 100, topic_id=topic_id) == list(range(100))


def test_a_topic_that_grows_during_the_read_is_the_same(cluster: FakeRangeCluster) -> None:
    def grow() -> RangeHeader:
        log = cluster.logs[ORDERS]
        cluster.add("orders", 1, [[Record(0)]])
        log.batches.append((100, 101, encode_batch([Record(100)])))
        log.high_watermark = 101
        return RangeHeader(error_code=NOT_LEADER_OR_FOLLOWER)

    cluster.before_frame = fail_once_at(3, grow)  # type: ignore[assignment]
    assert Reading(cluster).offsets(0, 100) == list(range(100))


def test_other_errors_are_told_at_once(cluster: FakeRangeCluster) -> None:
    cluster.before_frame = lambda about: RangeHeader(
        error_code=POLICY_VIOLATION, error_message="not today"
    )
    with pytest.raises(CallRefused, match="POLICY_VIOLATION: not today"):
        Reading(cluster).offsets(0, 100)


def test_a_corrupt_batch_is_told_with_its_place(cluster: FakeRangeCluster) -> None:
    base_offset, next_offset, encoded = cluster.logs[ORDERS].batches[4]
    damaged = encoded[:-1] + bytes([encoded[-1] ^ 1])
    cluster.logs[ORDERS].batches[4] = (base_offset, next_offset, damaged)
    with pytest.raises(CorruptBatch, match=r"topic orders partition 0 .* offset 40"):
        Reading(cluster).offsets(0, 100)


def test_stopping_in_the_middle_closes_the_stream(cluster: FakeRangeCluster) -> None:
    batches = Reading(cluster).batches(0, 100)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name == "range-frames"]


def test_offsets_are_asked_again_when_the_leader_moved(cluster: FakeRangeCluster) -> None:
    cluster.add("orders", 1, [[Record(7)]], leader=1)
    reading = Reading(cluster)
    with ClusterClient(cluster.bootstrap, reading.retry_policy, reached=reading.reached) as client:
        client.describe_topics(["orders"])
        cluster.logs[ORDERS].leader = 1
        questions = [OffsetQuestion(TopicPartition("orders", n), LATEST) for n in (0, 1)]
        answers = client.list_offsets(questions)
    assert [answers[question].offset for question in questions] == [100, 8]
    assert reading.pauses == [0.1]


def test_a_broker_that_knows_nothing_yet_is_not_believed(cluster: FakeRangeCluster) -> None:
    cluster.uninformed.add(0)
    reading = Reading(cluster)
    with ClusterClient(cluster.bootstrap, reading.retry_policy, reached=reading.reached) as client:
        assert [t.error_code for t in client.describe_topics(["orders"]).topics] == [0]
        assert client.leader_of(ORDERS) is not None
        (nowhere,) = client.describe_topics(["nowhere"]).topics
        assert nowhere.error_code
    assert reading.offsets(0, 100) == list(range(100))
    assert reading.pauses == []


def test_a_broken_call_reaches_the_reader() -> None:
    class Broken:
        def __iter__(self) -> Iterator[bytes]:
            yield b"frame"
            raise grpc.RpcError("broken")

        def cancel(self) -> bool:
            return True

    frames = FrameStream(Broken(), 1000)
    received = iter(frames)
    assert next(received) == b"frame"
    with pytest.raises(grpc.RpcError, match="broken"):
        next(received)
    frames.close()


@pytest.mark.parametrize("frame", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x05abc"])
def test_frames_that_are_none(frame: bytes) -> None:
    with pytest.raises(ClusterUnavailable, match="a frame of"):
        split_frame(frame)
