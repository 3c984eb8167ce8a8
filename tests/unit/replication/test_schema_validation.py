"""Topics whose records must name schemas that the registry has."""

import asyncio

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.schema_prefixes import NamedParts
from quorate.broker.log.batches.topic_timestamps import TopicStorageOptions
from quorate.broker.replication.api import ProduceOutcome
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.record_batches import CODECS, Record, encode_batch
from tests.unit.replication.test_validation_queue import producing, turns


class Registry:
    """The ids that it has, and the questions that it was asked."""

    def __init__(self, broker: BrokerReplicas, *ids: int) -> None:
        self.ids = set(ids)
        self.asked: list[int] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_away = False
        broker.manager.schemas.ask = self._ask

    async def _ask(self, schema_id: int) -> bool:
        self.asked.append(schema_id)
        await self.answers.wait()
        if self.is_away:
            raise KafkaError(errors_pb2.REQUEST_TIMED_OUT, "nobody answers")
        return schema_id in self.ids


def sent(*values: bytes, codec: str = "none", sequence: int | None = None) -> bytes:
    producer = (-1, -1, -1) if sequence is None else (7, 0, sequence)
    records = [Record(n, value=value) for n, value in enumerate(values)]
    return encode_batch(records, codec=codec, producer=producer)


def named(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + b"content"


async def lead(broker: BrokerReplicas, *topics: str, codec: int | None = None) -> None:
    parts = NamedParts(values=True)
    broker.limits.stored = TopicStorageOptions(named_parts=parts, codec=codec)
    for topic in topics:
        await broker.lead(topic, isr=(1,), replicas=(1,))


def places(outcome: ProduceOutcome) -> list[int]:
    assert outcome.error_code == errors_pb2.INVALID_RECORD
    return [one.place for one in outcome.record_errors]


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("of_topic", [None, CODECS["lz4"]])
async def test_records_name_known_schemas_or_are_refused(
    broker: BrokerReplicas, codec: str, of_topic: int | None
) -> None:
    registry = Registry(broker, 1, 2)
    await lead(broker, "orders", codec=of_topic)
    outcome = await broker.produce("orders", sent(named(1), named(2), codec=codec), acks=0)
    assert outcome.base_offset == 0
    outcome = await broker.produce("orders", sent(named(1), b"x", named(3), codec=codec), acks=0)
    assert places(outcome) == [1, 2]
    assert broker.hosted("orders").log.log_end_offset == 2
    assert registry.asked == [1, 2, 3]


async def test_a_topic_without_validation_asks_nobody(broker: BrokerReplicas) -> None:
    registry = Registry(broker)
    await broker.lead("orders", isr=(1,), replicas=(1,))
    assert (await broker.produce("orders", sent(b"x"), acks=0)).base_offset == 0
    assert registry.asked == []


async def test_a_schema_that_was_just_registered_is_found(broker: BrokerReplicas) -> None:
    registry = Registry(broker)
    await lead(broker, "orders")
    assert places(await broker.produce("orders", sent(named(5)), acks=0)) == [0]
    registry.ids.add(5)
    assert (await broker.produce("orders", sent(named(5)), acks=0)).base_offset == 0
    registry.ids.clear()
    assert (await broker.produce("orders", sent(named(5)), acks=0)).base_offset == 1
    assert registry.asked == [5, 5], "what is known is not asked for again"


async def test_the_first_unknown_schema_ends_the_questions(broker: BrokerReplicas) -> None:
    registry = Registry(broker)
    await lead(broker, "orders")
    values = [named(n) for n in range(100)]
    assert places(await broker.produce("orders", sent(*values), acks=0)) == [0]
    assert registry.asked == [0]


async def test_only_the_partition_that_asks_waits_and_nothing_overtakes(
    broker: BrokerReplicas,
) -> None:
    registry = Registry(broker, 1, 2)
    await lead(broker, "orders", "others", "more")
    assert (await broker.produce("others", sent(named(1)), acks=0)).base_offset == 0
    registry.answers.clear()
    first = producing(broker, "orders", sent(named(2), sequence=0))
    second = producing(broker, "orders", sent(named(1), sequence=1))
    third = producing(broker, "more", sent(named(2)))
    assert (await broker.produce("others", sent(named(1)), acks=0)).base_offset == 1
    await turns()
    assert not first.done()
    assert not second.done()
    fourth = producing(broker, "orders", sent(named(1), sequence=2))
    registry.answers.set()
    outcomes = [await one for one in (first, second, fourth)]
    assert [one.base_offset for one in outcomes] == [0, 1, 2]
    assert (await third).base_offset == 0
    assert registry.asked == [1, 2], "two that wait for the same schema ask once"


async def test_a_registry_that_is_away_has_producers_try_again(broker: BrokerReplicas) -> None:
    registry = Registry(broker, 1)
    registry.is_away = True
    await lead(broker, "orders")
    first = await broker.produce("orders", sent(named(1), sequence=0), acks=0)
    assert first.error_code == errors_pb2.REQUEST_TIMED_OUT
    registry.is_away = False
    # What its producer had sent behind it must not come before it.
    behind = await broker.produce("orders", sent(named(1), sequence=1), acks=0)
    assert behind.error_code == errors_pb2.NOT_ENOUGH_REPLICAS
    for sequence in range(2):
        again = await broker.produce("orders", sent(named(1), sequence=sequence), acks=0)
        assert again.base_offset == sequence


async def test_what_is_stored_is_not_judged_again(broker: BrokerReplicas) -> None:
    registry = Registry(broker, 1)
    await lead(broker, "orders")
    batch = sent(named(1), sequence=0)
    assert (await broker.produce("orders", batch, acks=0)).base_offset == 0
    registry.is_away = True
    assert (await broker.produce("orders", batch, acks=0)).base_offset == 0


async def test_a_leader_that_stops_refuses_what_waits_for_the_registry(
    broker: BrokerReplicas,
) -> None:
    registry = Registry(broker, 1)
    registry.answers.clear()
    await lead(broker, "orders")
    waiting = [producing(broker, "orders", sent(named(1))) for _ in range(2)]
    while not registry.asked:
        await asyncio.sleep(0)
    await broker.manager.close()
    outcomes = [await one for one in waiting]
    assert [one.error_code for one in outcomes] == [errors_pb2.NOT_LEADER_OR_FOLLOWER] * 2
