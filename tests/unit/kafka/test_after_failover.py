"""Clients at a new leader that has not heard from its ISR yet, through the wire handlers (C19)."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.kafka_fakes import FakeBrokerInside, fake_broker
from tests.support.replica_cluster import batch
from tests.unit.kafka.conftest import Ask

FETCH, LIST_OFFSETS = 1, 2
LATEST, EARLIEST = -1, -2


@pytest.fixture
async def replicas() -> AsyncIterator[BrokerReplicas]:
    """A follower with two records, one of them known to be committed, that was just elected."""
    replicas = await BrokerReplicas().start()
    await replicas.lead("t", isr=(1, 2), replicas=(1, 2))
    for value in ("known", "exposed by the old leader"):
        await replicas.produce("t", batch(value), acks=0)
    replicas.store.flush()
    replicas.follower(2).send("t", fetch=1)
    await replicas.lead("t", isr=(1, 2), replicas=(1, 2), epoch=1, version=1)
    yield replicas
    await replicas.close()


@pytest.fixture
def inside(tmp_path: Path, replicas: BrokerReplicas) -> FakeBrokerInside:
    """Handlers with real replicas behind them."""
    inside = fake_broker(tmp_path)
    inside.services = dataclasses.replace(inside.services, replicas=replicas.manager)
    return inside


async def listed(ask: Ask, version: int, timestamp_ms: int) -> Any:  # noqa: ANN401 - kio's
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp_ms}
    topics = [{"name": "t", "partitions": [partition]}]
    values = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    (topic,) = (await ask(LIST_OFFSETS, version, values)).topics
    return topic.partitions[0]


async def fetched(ask: Ask, offset: int) -> Any:  # noqa: ANN401 - kio's
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    values = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    (topic,) = (await ask(FETCH, 11, values)).responses
    return topic.partitions[0]


@pytest.mark.parametrize(
    ("version", "not_yet"),
    [
        (1, errors_pb2.LEADER_NOT_AVAILABLE),
        (4, errors_pb2.LEADER_NOT_AVAILABLE),
        (5, errors_pb2.OFFSET_NOT_AVAILABLE),
        (6, errors_pb2.OFFSET_NOT_AVAILABLE),
    ],
)
async def test_c19_latest_never_goes_back_after_a_failover(
    ask: Ask, replicas: BrokerReplicas, version: int, not_yet: int
) -> None:
    refused = await listed(ask, version, LATEST)
    assert (refused.error_code, refused.offset) == (not_yet, -1)
    earliest = await listed(ask, version, EARLIEST)
    assert (earliest.error_code, earliest.offset) == (errors_pb2.NONE, 0)
    replicas.follower(2).send("t", fetch=2, epoch=1)
    latest = await listed(ask, version, LATEST)
    assert (latest.error_code, latest.offset) == (errors_pb2.NONE, 2)


async def test_c16_c19_what_the_old_leader_had_exposed_is_not_out_of_range(ask: Ask) -> None:
    """Consumers must not be made to reset, nor see offsets that are not committed here yet."""
    for offset in (1, 2):
        partition = await fetched(ask, offset)
        assert (partition.error_code, bytes(partition.records or b"")) == (0, b"")
    beyond = await fetched(ask, 3)
    assert beyond.error_code == errors_pb2.OFFSET_OUT_OF_RANGE
