"""DeleteRecords: partition by partition, in every version."""

from typing import Any

import pytest

from quorate.broker.replication.api import DeleteOutcome, DeleteRecordsPartition
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.unit.kafka.conftest import Ask

DELETE_RECORDS = 21


def asking(**topics: dict[int, int]) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": number, "offset": offset}
                    for number, offset in partitions.items()
                ],
            }
            for name, partitions in topics.items()
        ],
        "timeout": 1234,
    }


@pytest.mark.parametrize("version", range(3))
async def test_d3_one_bad_partition_never_stops_its_siblings(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    t0, t1, u0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
    gone = {t0: DeleteOutcome(low_watermark=7), u0: DeleteOutcome(low_watermark=9)}
    inside.replicas.deletions = gone
    response = await ask(DELETE_RECORDS, version, asking(t={0: 7, 1: 5}, u={0: -1}))
    told = [
        (topic.name, [(p.partition_index, p.low_watermark, p.error_code) for p in topic.partitions])
        for topic in response.topics
    ]
    unknown = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert told == [("t", [(0, 7, 0), (1, -1, unknown)]), ("u", [(0, 9, 0)])]
    wants = [
        DeleteRecordsPartition(t0, 7),
        DeleteRecordsPartition(t1, 5),
        DeleteRecordsPartition(u0, -1),
    ]
    assert inside.replicas.asked_to_delete == [(wants, 1234)]
