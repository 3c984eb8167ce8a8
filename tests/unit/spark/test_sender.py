"""Batches over real streams to brokers inside this process, whatever happens to them on the way."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import CallRefused, ClusterUnavailable, UnknownTopic, WriteRefused
from quorate.spark.writing import sender as sender_module
from quorate.spark.writing.batch_builder import ProducerBatch
from quorate.spark.writing.partitioner import TargetPartition
from quorate.spark.writing.sender import Sender, SenderSettings
from quorate_proto.v1.errors_pb2 import NOT_LEADER_OR_FOLLOWER
from quorate_proto.v1.replication_pb2 import RangeWriteRequest, RangeWriteResponse, WriteOutcome

TOPIC_ID = b"the topic's id.."


class Silence(Exception):
    """Raised by a hook: this frame is taken and never answered."""


class Break(Exception):
    """Raised by a hook: the stream breaks here."""


@dataclass(eq=False)
class Broker:
    """Takes batches, each a text, and forgets those that come again; ``before`` says what fails.

    ``before(number of the frame)`` gives an error code, or raises.
    """

    name: str
    before: Callable[[int], int] = lambda number: 0
    before_answer: Callable[[int], None] = lambda number: None
    logs: dict[int, list[bytes]] = field(default_factory=dict)
    frames: int = 0
    answers_frame: Callable[[int], int] = lambda request_id: request_id

    def __post_init__(self) -> None:
        self.server = grpc.server(ThreadPoolExecutor(8))
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(
            self.write
        )
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("quorate.v1.RangeWrite", {"Write": handler}),)
        )
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def write(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        for frame in frames:
            number, self.frames = self.frames, self.frames + 1
            size = int.from_bytes(frame[:4], "big")
            request = RangeWriteRequest.FromString(frame[4 : 4 + size])
            try:
                code = self.before(number)
                if not code:
                    self._append(request, frame[4 + size :])
                self.before_answer(number)
            except Silence:
                continue
            except Break:
                context.abort(grpc.StatusCode.UNAVAILABLE, "broken by the test")
            outcome = WriteOutcome(error_code=code, error_message="as the test says")
            yield RangeWriteResponse(
                request_id=self.answers_frame(request.request_id),
                outcomes=[outcome] * len(request.partitions),
            ).SerializeToString()

    def _append(self, request: RangeWriteRequest, records: bytes) -> None:
        at = 0
        for one in request.partitions:
            assert one.topic_id == TOPIC_ID
            text = records[at : at + one.records_size]
            at += one.records_size
            log = self.logs.setdefault(one.partition, [])
            if text not in log:
                log.append(text)


@dataclass
class FakeCluster:
    """As much of a `ClusterClient` as a sender asks: who leads, and how to reach it."""

    leaders: dict[int, Broker]
    id_now: bytes = TOPIC_ID
    on_refresh: Callable[[], None] = lambda: None
    channels: dict[str, grpc.Channel] = field(default_factory=dict)

    def leader_of(self, tp: TopicPartition) -> str:
        return self.leaders[tp.partition].address

    def channel(self, address: str) -> grpc.Channel:
        return self.channels.setdefault(address, grpc.insecure_channel(address))

    def refresh(self, partitions: Sequence[TopicPartition]) -> None:
        assert partitions
        self.on_refresh()

    def topic_id(self, topic: str) -> bytes:
        return self.id_now


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    running = [Broker("A"), Broker("B")]
    yield running
    for broker in running:
        broker.server.stop(None).wait()


@pytest.fixture
def cluster(brokers: list[Broker]) -> Iterator[FakeCluster]:
    """Partition 0 is led by A, partition 1 by B."""
    known = FakeCluster({0: brokers[0], 1: brokers[1]})
    yield known
    for channel in known.channels.values():
        channel.close()


def batches(count: int, *partitions: int) -> Iterator[ProducerBatch]:
    """``count`` batches of each partition by turns; each says which it is."""
    for number in range(count):
        for partition in partitions:
            text = b"%d of %d" % (number, partition)
            target = TargetPartition(TopicPartition("t", partition), TOPIC_ID, 0)
            yield ProducerBatch(number, target, (text,), len(text), number, count=1)


def texts(count: int, partition: int) -> list[bytes]:
    return [batch.records[0] for batch in batches(count, partition)]  # type: ignore[misc]


def write(cluster: Any, count: int, *partitions: int, timeout_ms: int = 5_000) -> None:  # noqa: ANN401 - a stand-in
    with Sender(cluster, SenderSettings(timeout_ms, request_timeout_ms=200)) as sender:
        sender.send(batches(count, *partitions))
        sender.flush()
        assert sender.records_written == count * len(partitions)


def once(number: int, act: Callable[[], int]) -> Callable[[int], int]:
    """A hook that acts at the ``number``-th frame of a broker."""
    return lambda frame: act() if frame == number else 0


def raising(error: type[Exception]) -> Callable[[], int]:
    def act() -> int:
        raise error

    return act


def test_d2_every_batch_reaches_its_leader_in_order(
    cluster: FakeCluster, brokers: list[Broker]
) -> None:
    write(cluster, 100, 0, 1)
    assert brokers[0].logs == {0: texts(100, 0)}
    assert brokers[1].logs == {1: texts(100, 1)}


def test_d2_goes_on_at_the_new_leader(cluster: FakeCluster, brokers: list[Broker]) -> None:
    def move() -> None:
        cluster.leaders[0] = brokers[1]

    cluster.on_refresh = move
    brokers[0].before = lambda number: NOT_LEADER_OR_FOLLOWER if number >= 3 else 0
    write(cluster, 50, 0, 1)
    before = brokers[0].logs[0]
    assert 0 < len(before) < 50
    assert before + brokers[1].logs[0] == texts(50, 0)
    assert brokers[1].logs[1] == texts(50, 1)


@pytest.mark.parametrize("frame", [0, 1, 4])
def test_d2_a_lost_answer_makes_it_come_again(
    cluster: FakeCluster, brokers: list[Broker], frame: int
) -> None:
    def lose(number: int) -> None:
        if number == frame:
            raise Break

    brokers[0].before_answer = lose
    write(cluster, 50, 0)
    assert brokers[0].logs[0] == texts(50, 0)


def test_a_silent_leader_is_left_when_another_leads(
    cluster: FakeCluster, brokers: list[Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "SILENCE_MS", 50)
    monkeypatch.setattr(sender_module, "ANSWER_GRACE_MS", 600_000)
    brokers[0].before = lambda number: raising(Silence)()

    def move() -> None:
        cluster.leaders[0] = brokers[1]

    cluster.on_refresh = move
    write(cluster, 5, 0)
    assert brokers[1].logs[0] == texts(5, 0)


def test_a_leader_that_never_answers_is_tried_on_another_stream(
    cluster: FakeCluster, brokers: list[Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "SILENCE_MS", 20)
    monkeypatch.setattr(sender_module, "ANSWER_GRACE_MS", 0)
    brokers[0].before = once(0, raising(Silence))
    write(cluster, 5, 0)
    assert brokers[0].logs[0] == texts(5, 0)


def test_nobody_there_is_told_after_the_time_allowed(cluster: FakeCluster) -> None:
    cluster.leaders[0].server.stop(None).wait()
    with pytest.raises(ClusterUnavailable, match=r"topic t partition 0 fails .*UNAVAILABLE"):
        write(cluster, 5, 0, timeout_ms=300)


def test_who_may_not_write_is_told_at_once(cluster: FakeCluster) -> None:
    cluster.leaders[0].server.stop(None).wait()
    empty = grpc.server(ThreadPoolExecutor(1))
    port = empty.add_insecure_port("127.0.0.1:0")
    empty.start()
    cluster.leaders[0].address = f"127.0.0.1:{port}"
    with pytest.raises(CallRefused, match="UNIMPLEMENTED"):
        write(cluster, 5, 0)
    empty.stop(None).wait()


def test_another_topic_of_the_same_name_is_not_written_to(
    cluster: FakeCluster, brokers: list[Broker]
) -> None:
    brokers[0].before = lambda number: NOT_LEADER_OR_FOLLOWER
    cluster.id_now = b"another's id...."
    with pytest.raises(UnknownTopic, match="topic t was deleted and created anew"):
        write(cluster, 5, 0)


def test_an_answer_of_another_shape_is_refused(cluster: FakeCluster, brokers: list[Broker]) -> None:
    brokers[0].answers_frame = lambda request_id: 99
    with pytest.raises(WriteRefused, match="answered 1 of 0 batches"):
        write(cluster, 1, 0)


def test_a_writer_waits_while_too_much_is_under_way(
    cluster: FakeCluster, brokers: list[Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "OPEN_BYTES_MAX", 60)
    stand_in: Any = cluster
    open_bytes: list[int] = []
    given = 0

    def watched() -> Iterator[ProducerBatch]:
        nonlocal given
        for batch in batches(100, 0):
            open_bytes.append(given - sender.records_written)
            yield batch
            given += 1

    with Sender(stand_in, SenderSettings(5_000, 5_000)) as sender:
        sender.send(watched())
        sender.flush()
    assert 1 < max(open_bytes) <= 60 // len("0 of 0")
    assert brokers[0].logs[0] == texts(100, 0)
