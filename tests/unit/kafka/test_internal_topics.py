"""FindCoordinator creates the topics of the coordinators, and waits for them (F4)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from quorate.broker.kafka.groups import coordinator_topics as internal_topics
from quorate.common.types import BrokerId, Endpoint
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.kafka_fakes import FakeBroker, FakeBrokerInside
from tests.support.kafka_wire import producing, record_batch
from tests.support.waiting import async_wait_until
from tests.unit.kafka.conftest import Ask

PRODUCE, METADATA, FIND_COORDINATOR = 0, 3, 10
METADATA_OF_ALL = {
    "topics": None,
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
GROUP, TRANSACTION = 0, 1


def find(*keys: str, key_type: int = GROUP) -> dict[str, Any]:
    return {"key_type": key_type, "coordinator_keys": list(keys)}


async def test_f4_the_first_group_has_its_topic_created_by_the_controller(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    answer = await ask(FIND_COORDINATOR, 4, find("a", "b"))
    assert [(one.key, one.error_code, one.port) for one in answer.coordinators] == [
        ("a", 0, 9092),
        ("b", 0, 9092),
    ]
    (creation,) = inside.forwarder.creations
    (topic,) = creation.topics
    assert (topic.name, topic.num_partitions) == ("__consumer_offsets", 50)
    assert creation.context.api_name == "FindCoordinator"
    assert len(inside.metadata.topics["__consumer_offsets"].partitions) == 50
    await ask(FIND_COORDINATOR, 2, {"key": "c", "key_type": GROUP})
    assert len(inside.forwarder.creations) == 1


@pytest.mark.parametrize(("brokers", "replicas"), [(1, 1), (2, 2), (5, 3)])
async def test_f4_a_small_cluster_gets_as_many_replicas_as_it_has_brokers(
    inside: FakeBrokerInside, ask: Ask, brokers: int, replicas: int
) -> None:
    for number in range(2, brokers + 1):
        inside.metadata.brokers[BrokerId(number)] = FakeBroker(
            Endpoint("h", number), Endpoint("g", number)
        )
    inside.metadata.changed()
    await ask(FIND_COORDINATOR, 4, find("a"))
    assert inside.forwarder.creations[0].topics[0].replication_factor == replicas


@pytest.mark.parametrize(("brokers", "min_isr"), [(1, "1"), (3, "2")])
async def test_f4_the_topic_of_transactions_loses_nothing_that_was_decided(
    inside: FakeBrokerInside, ask: Ask, brokers: int, min_isr: str
) -> None:
    for number in range(2, brokers + 1):
        inside.metadata.brokers[BrokerId(number)] = FakeBroker(
            Endpoint("127.0.0.1", 9092 + number), Endpoint("127.0.0.1", 9192 + number)
        )
    answer = await ask(FIND_COORDINATOR, 4, find("a", key_type=TRANSACTION))
    assert [one.error_code for one in answer.coordinators] == [0]
    (creation,) = inside.forwarder.creations
    (topic,) = creation.topics
    assert (topic.name, topic.num_partitions) == ("__transaction_state", 50)
    assert topic.replication_factor == brokers
    assert dict(topic.configs) == {
        "cleanup.policy": "compact",
        "min.insync.replicas": min_isr,
        "unclean.leader.election.enable": "false",
    }


async def test_f4_a_key_of_another_kind_creates_nothing(inside: FakeBrokerInside, ask: Ask) -> None:
    answer = await ask(FIND_COORDINATOR, 4, find("a", key_type=7))
    assert [one.error_code for one in answer.coordinators] == [errors_pb2.INVALID_REQUEST]
    assert not inside.forwarder.creations


async def test_f4_many_who_ask_at_once_cause_one_creation_and_wait_for_it(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.forwarder.gate = asyncio.Event()
    asking = [asyncio.create_task(ask(FIND_COORDINATOR, 4, find(key))) for key in "abc"]
    await async_wait_until(lambda: inside.forwarder.creations, "a creation")
    assert not any(task.done() for task in asking)
    inside.forwarder.gate.set()
    answers = await asyncio.gather(*asking)
    assert {answer.coordinators[0].error_code for answer in answers} == {0}
    assert len(inside.forwarder.creations) == 1


async def test_f4_an_answer_waits_until_this_broker_was_told_of_the_topic(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    create: Callable[[Any], Awaitable[Any]] = inside.forwarder.answers["CreateTopics"]

    async def created_elsewhere(request: Any) -> Any:  # noqa: ANN401 - any request
        asyncio.get_running_loop().call_later(0.5, asyncio.ensure_future, create(request))
        return admin_pb2.CreateTopicsResponse(
            topics=[admin_pb2.TopicResult(error_code=errors_pb2.TOPIC_ALREADY_EXISTS)]
        )

    inside.forwarder.answers["CreateTopics"] = created_elsewhere
    began = asyncio.get_running_loop().time()
    answer = await ask(FIND_COORDINATOR, 4, find("a"))
    assert answer.coordinators[0].error_code == 0
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.5, abs=0.1)


async def test_f4_who_cannot_be_served_yet_is_told_to_ask_again(
    inside: FakeBrokerInside, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internal_topics, "CREATION_WAIT_S", 0.2)
    inside.forwarder.refusals["__consumer_offsets"] = errors_pb2.INVALID_REPLICATION_FACTOR
    answer = await ask(FIND_COORDINATOR, 4, find("a"))
    (one,) = answer.coordinators
    assert one.error_code == errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert "INVALID_REPLICATION_FACTOR" in one.error_message
    inside.forwarder.gate = asyncio.Event()
    inside.forwarder.refusals.clear()
    began = asyncio.get_running_loop().time()
    (one,) = (await ask(FIND_COORDINATOR, 4, find("a"))).coordinators
    assert one.error_code == errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert asyncio.get_running_loop().time() - began >= 0.2
    inside.forwarder.gate.set()
    # The time limit of the refusal above must not hit this answer on a busy machine.
    monkeypatch.setattr(internal_topics, "CREATION_WAIT_S", 30.0)
    (one,) = (await ask(FIND_COORDINATOR, 4, find("a"))).coordinators
    assert one.error_code == 0


async def test_what_coordinators_keep_is_marked_and_not_written_by_clients(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    await ask(FIND_COORDINATOR, 4, find("a"))
    assert dict(inside.forwarder.creations[0].topics[0].configs) == {"cleanup.policy": "compact"}
    inside.metadata.add_topic("t")
    told = await ask(METADATA, 9, METADATA_OF_ALL)
    assert {topic.name: topic.is_internal for topic in told.topics} == {
        "__consumer_offsets": True,
        "t": False,
    }
    values = producing(record_batch())
    values["topic_data"].append({**values["topic_data"][0], "name": "__consumer_offsets"})
    answer = await ask(PRODUCE, 8, values)
    assert [topic.partition_responses[0].error_code for topic in answer.responses] == [
        0,
        errors_pb2.INVALID_TOPIC_EXCEPTION,
    ]
