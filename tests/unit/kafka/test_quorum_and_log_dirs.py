"""DescribeQuorum and DescribeLogDirs, as one broker responds to them."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from quorate.broker.kafka.metadata.describe_quorum_api import METADATA_TOPIC
from quorate.broker.replication.api import ProduceEntry
from quorate.common.types import TopicPartition
from quorate.quorum.quorum_errors import QuorumUnavailable
from quorate_proto.v1 import errors_pb2
from quorate_proto.v1.quorum_pb2 import QuorumStatusResponse, VoterStatus
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import record_batch
from tests.unit.kafka.conftest import Ask

QUORUM, LOG_DIRS = 55, 35
NOW_MS = 1_000_000
ID = b"0123456789abcdef"


def status() -> QuorumStatusResponse:
    """Return the status of the quorum as the leader, voter 1, reports it."""

    def voter(number: int, **told: Any) -> VoterStatus:  # noqa: ANN401
        raft, grpc = f"h{number}:71", f"h{number}:72"
        return VoterStatus(voter_id=number, raft_address=raft, grpc_address=grpc, **told)

    return QuorumStatusResponse(
        voter_id=1,
        leader_id=1,
        term=7,
        commit_offset=90,
        voters=[
            voter(1, match_offset=100, directory_id=ID, last_heard_ms=-1),
            voter(2, match_offset=95, lag=5, last_heard_ms=40),
            voter(3, match_offset=-1, lag=-1, last_heard_ms=-1),
            voter(4, match_offset=100, last_heard_ms=10, observer=True),
        ],
    )


def asking(topic: str, *partitions: int) -> dict[str, Any]:
    named = [{"partition_index": number} for number in partitions]
    return {"topics": [{"topic_name": topic, "partitions": named}]}


@pytest.mark.parametrize("version", range(3))
async def test_d1_the_metadata_log_is_described_as_the_voter_knows_it(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    async def tell() -> QuorumStatusResponse:
        return status()

    inside.quorum.answer = tell
    inside.quorum.now_ms = NOW_MS
    response = await ask(QUORUM, version, asking(METADATA_TOPIC, 0, 1))
    ((log, other),) = (topic.partitions for topic in response.topics)
    assert (log.leader_id, log.leader_epoch, log.high_watermark) == (1, 7, 90)
    assert [(one.replica_id, one.log_end_offset) for one in log.current_voters] == [
        (1, 100),
        (2, 95),
        (3, -1),
    ]
    assert [one.replica_id for one in log.observers] == [4]
    assert other.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 1:
        seen = [
            (one.last_fetch_timestamp, one.last_caught_up_timestamp)
            for one in (*log.current_voters, *log.observers)
        ]
        assert seen == [
            (NOW_MS, NOW_MS),
            (NOW_MS - 40, -1),
            (-1, -1),
            (NOW_MS - 10, NOW_MS - 10),
        ]
    if version >= 2:
        assert log.current_voters[0].replica_directory_id == UUID(bytes=ID)
        addresses = [(one.name, one.host, one.port) for one in response.nodes[1].listeners]
        assert addresses == [("RAFT", "h2", 71), ("GRPC", "h2", 72)]


async def test_d1_a_quorum_that_is_away_is_said_to_be(inside: FakeBrokerInside, ask: Ask) -> None:
    async def fail() -> QuorumStatusResponse:
        raise QuorumUnavailable("nobody there")

    inside.quorum.answer = fail
    response = await ask(QUORUM, 2, asking(METADATA_TOPIC, 0))
    assert response.error_code == errors_pb2.REQUEST_TIMED_OUT
    assert "nobody there" in response.error_message


@pytest.mark.parametrize("version", range(1, 5))
async def test_d3_the_log_folder_is_described_partition_by_partition(
    inside: FakeBrokerInside, ask: Ask, tmp_path: Path, version: int
) -> None:
    inside.metadata.add_topic("t", 3)
    for partition, records in ((0, 1), (2, 5)):
        await produce(inside, TopicPartition("t", partition), records)
    size_0, size_2 = (one.size_bytes for one in inside.replicas.log_sizes())
    (result,) = (await ask(LOG_DIRS, version, {"topics": None})).results
    assert (result.error_code, result.log_dir) == (errors_pb2.NONE, str(tmp_path))
    (topic,) = result.topics
    assert [(one.partition_index, one.partition_size) for one in topic.partitions] == [
        (0, size_0),
        (2, size_2),
    ]
    assert size_2 > size_0 > 0
    if version >= 4:
        assert result.total_bytes > result.usable_bytes > 0
    some = {"topics": [{"topic": "t", "partitions": [2]}, {"topic": "none", "partitions": [0]}]}
    (result,) = (await ask(LOG_DIRS, version, some)).results
    assert [one.partition_index for one in result.topics[0].partitions] == [2]


async def test_d3_a_folder_that_is_full_or_damaged_is_said_to_be_with_all_it_has(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.metadata.add_topic("t", 3)
    await produce(inside, TopicPartition("t", 1), 1)
    inside.replicas.is_troubled = True
    (result,) = (await ask(LOG_DIRS, 4, {"topics": None})).results
    assert result.error_code == errors_pb2.KAFKA_STORAGE_ERROR
    assert [topic.name for topic in result.topics] == ["t"]
    assert result.usable_bytes > 0


async def test_d3_a_folder_that_cannot_be_looked_at_is_said_to_be(
    inside: FakeBrokerInside, ask: Ask, tmp_path: Path
) -> None:
    tmp_path.rmdir()
    (result,) = (await ask(LOG_DIRS, 4, {"topics": None})).results
    assert (result.error_code, result.total_bytes) == (errors_pb2.KAFKA_STORAGE_ERROR, -1)


@pytest.mark.parametrize("version", [1, 2])
async def test_d3_a_replica_is_in_the_one_folder_there_is(
    inside: FakeBrokerInside, ask: Ask, tmp_path: Path, version: int
) -> None:
    inside.metadata.add_topic("t", 2)
    await produce(inside, TopicPartition("t", 0), 1)
    both = [{"name": "t", "partitions": [0, 1]}]
    elsewhere = [{"name": "t", "partitions": [0]}]
    dirs = [{"path": str(tmp_path), "topics": both}, {"path": "/other", "topics": elsewhere}]
    (topic,) = (await ask(34, version, {"dirs": dirs})).results
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [
        (0, errors_pb2.NONE),
        (1, errors_pb2.REPLICA_NOT_AVAILABLE),
        (0, errors_pb2.LOG_DIR_NOT_FOUND),
    ]


async def produce(inside: FakeBrokerInside, tp: TopicPartition, records: int) -> None:
    entry = ProduceEntry(tp, memoryview(bytearray(record_batch(records))))
    (outcome,) = await inside.replicas.produce([entry], acks=1, timeout_ms=1_000)
    assert outcome.error_code == errors_pb2.NONE
