"""Quotas of controller mutations among brokers: what is charged, refused, waited for (KIP-599)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from quorate.broker.admin.metric_encoding import encode_metrics
from quorate.broker.changes.table import (
    ALTER_CLIENT_QUOTAS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    REMOVE_PARTITIONS,
)
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.controller.cluster import Cluster

OVER = errors_pb2.THROTTLING_QUOTA_EXCEEDED


class Client:
    """Client "app" of user "anna", old or new, and what it was last told to wait."""

    def __init__(self, cluster: Cluster, *, old: bool = False, user: str = "User:anna") -> None:
        self._cluster = cluster
        self.context = admin_pb2.RequestContext(
            principal_name=user, client_id="app", accept_over_quota=old
        )
        self.throttle_ms = 0
        self.messages: list[str] = []

    async def create(self, *sizes: int, name: str = "t", validate_only: bool = False) -> list[int]:
        topics = [
            admin_pb2.NewTopic(name=f"{name}{number}", num_partitions=size, replication_factor=1)
            for number, size in enumerate(sizes)
        ]
        request = admin_pb2.CreateTopicsRequest(
            context=self.context, topics=topics, validate_only=validate_only
        )
        return self._told(await self._cluster.active.perform(CREATE_TOPICS, request))

    async def delete(self, *names: str) -> list[int]:
        request = admin_pb2.DeleteTopicsRequest(context=self.context, names=names)
        return self._told(await self._cluster.active.perform(DELETE_TOPICS, request))

    async def grow(self, *names: str, to: int, validate_only: bool = False) -> list[int]:
        request = admin_pb2.CreatePartitionsRequest(
            context=self.context,
            topics=[admin_pb2.NewPartitions(name=name, count=to) for name in names],
            validate_only=validate_only,
        )
        return self._told(await self._cluster.active.perform(CREATE_PARTITIONS, request))

    async def shrink(self, name: str, *partitions: int) -> list[int]:
        request = admin_pb2.RemovePartitionsRequest(
            context=self.context,
            topics=[admin_pb2.TopicPartitions(topic=name, partitions=partitions)],
        )
        return self._told(await self._cluster.active.perform(REMOVE_PARTITIONS, request))

    def _told(self, answer: Any) -> list[int]:  # noqa: ANN401 - of any of the four
        assert answer.error_code == errors_pb2.NONE
        self.throttle_ms = answer.throttle_time_ms
        self.messages = [one.error_message for one in answer.topics]
        return [one.error_code for one in answer.topics]


async def set_quota(cluster: Cluster, rate: float | None, user: str = "anna") -> None:
    request = admin_pb2.AlterClientQuotasRequest(
        alterations=[
            admin_pb2.QuotaAlteration(
                entity=[admin_pb2.QuotaEntityPart(entity_type="user", name=user)],
                changes=[admin_pb2.QuotaChange(key="controller_mutations_rate", value=rate)],
            )
        ]
    )
    answer = await cluster.active.perform(ALTER_CLIENT_QUOTAS, request)
    assert [one.error_code for one in answer.results] == [errors_pb2.NONE]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Anna may have 2 partitions a second, 20 at once."""
    cluster = Cluster(**{"controller.quota.window.num": 10})
    await cluster.start_brokers(1, 2, 3)
    await set_quota(cluster, 2)
    yield cluster
    await cluster.stop()


async def test_s4_a_new_client_gets_one_of_two_topics_and_an_old_one_both(
    cluster: Cluster,
) -> None:
    new, old = Client(cluster), Client(cluster, old=True, user="User:berta")
    await set_quota(cluster, 2, "berta")
    assert await new.create(30, 30, name="new") == [errors_pb2.NONE, OVER]
    assert "quota of 2 partitions per second" in new.messages[1]
    assert 4_000 < new.throttle_ms <= 5_000
    assert await old.create(30, 30, name="old") == [errors_pb2.NONE] * 2
    assert 19_000 < old.throttle_ms <= 20_000
    assert sorted(cluster.image.topics) == ["new0", "old0", "old1"]


async def test_s4_deletions_cost_as_much(cluster: Cluster) -> None:
    await Client(cluster, user="User:root").create(30, 30, name="a")
    await Client(cluster, user="User:root").create(30, 30, name="b")
    await set_quota(cluster, 2, "berta")
    new, old = Client(cluster), Client(cluster, old=True, user="User:berta")
    assert await new.delete("a0", "a1") == [errors_pb2.NONE, OVER]
    assert 0 < new.throttle_ms <= 5_000
    assert await old.delete("b0", "b1") == [errors_pb2.NONE] * 2
    assert 15_000 < old.throttle_ms <= 20_000
    assert list(cluster.image.topics) == ["a1"]


async def test_s4_additions_cost_as_much(cluster: Cluster) -> None:
    await Client(cluster, user="User:root").create(1, 1, 1, 1)
    await set_quota(cluster, 2, "berta")
    new, old = Client(cluster), Client(cluster, old=True, user="User:berta")
    assert await new.grow("t0", "t1", to=31) == [errors_pb2.NONE, OVER]
    assert 0 < new.throttle_ms <= 5_000
    assert await old.grow("t2", "t3", to=31) == [errors_pb2.NONE] * 2
    assert 15_000 < old.throttle_ms <= 20_000
    sizes = [len(cluster.image.topics[f"t{number}"].partitions) for number in range(4)]
    assert sizes == [31, 1, 31, 31]


async def test_q1_removed_partitions_are_charged_too(cluster: Cluster) -> None:
    anna = Client(cluster)
    await Client(cluster, user="User:berta").create(40)
    assert await anna.shrink("t0", *range(10, 40)) == [errors_pb2.NONE]
    assert await anna.shrink("t0", 9) == [OVER]


async def test_q1_what_is_refused_or_done_already_costs_nothing(cluster: Cluster) -> None:
    anna = Client(cluster)
    assert await anna.create(1_000, name="bad name") == [errors_pb2.INVALID_TOPIC_EXCEPTION]
    assert await anna.create(20) == [errors_pb2.NONE]
    for _ in range(3):
        assert await anna.create(1_000) == [errors_pb2.TOPIC_ALREADY_EXISTS]
    assert await anna.create(1, name="u") == [errors_pb2.NONE]


async def test_q6_validation_costs_nothing(cluster: Cluster) -> None:
    anna = Client(cluster)
    for _ in range(3):
        assert await anna.create(1_000, validate_only=True) == [errors_pb2.NONE]
    assert await anna.create(5) == [errors_pb2.NONE]
    for _ in range(3):
        assert await anna.grow("t0", to=1_000, validate_only=True) == [errors_pb2.NONE]
    assert anna.throttle_ms == 0


async def test_q5_the_time_that_the_work_took_counts_as_waited(cluster: Cluster) -> None:
    await Client(cluster, user="User:berta").create(30)
    for broker in (2, 3):
        cluster.silent.add(broker)
    anna = Client(cluster, old=True)
    anna.context.timeout_ms = 3_000
    await anna.delete("t0")
    assert 1_000 < anna.throttle_ms < 3_500, "of 5,000"


async def test_q7_others_are_not_bound_and_a_removed_quota_binds_nobody(cluster: Cluster) -> None:
    anna = Client(cluster)
    assert await anna.create(30, 1) == [errors_pb2.NONE, OVER]
    assert await Client(cluster, user="User:berta").create(100, 100, name="b") == [0, 0]
    assert await Client(cluster, user="").create(100, 100, name="c") == [0, 0]
    await set_quota(cluster, None)
    assert await anna.create(1, 1, name="d") == [0, 0]


async def test_q4_after_the_time_it_was_told_a_client_is_let_in(cluster: Cluster) -> None:
    anna = Client(cluster)
    assert await anna.create(30, 1, name="a") == [0, OVER]
    await pass_time(anna.throttle_ms / 1_000)
    assert await anna.create(1, name="b") == [errors_pb2.NONE]


async def test_q7_who_only_asks_whether_a_quota_could_be_set_sets_none(cluster: Cluster) -> None:
    before = cluster.image.client_quotas
    request = admin_pb2.AlterClientQuotasRequest(
        alterations=[
            admin_pb2.QuotaAlteration(
                entity=[admin_pb2.QuotaEntityPart(entity_type="user", name="anna")],
                changes=[admin_pb2.QuotaChange(key="producer_byte_rate", value=1.0)],
            )
        ],
        validate_only=True,
    )
    answer = await cluster.active.perform(ALTER_CLIENT_QUOTAS, request)
    assert [one.error_code for one in answer.results] == [errors_pb2.NONE]
    assert cluster.image.client_quotas == before


def told(cluster: Cluster) -> list[admin_pb2.Metric]:
    """The controller's figures as clients get them."""
    return [one for sample in cluster.active.metrics() for one in encode_metrics(sample)]


async def test_q9_the_controller_tells_what_clients_use_and_how_much_it_has_to_do(
    cluster: Cluster,
) -> None:
    anna = Client(cluster)
    assert await anna.create(30, 30) == [errors_pb2.NONE, OVER]
    found = {(one.name, one.tags.get("user", "")): one.value for one in told(cluster)}
    assert -10 <= found["tokens", "anna"] < -9
    assert found["rate", "anna"] > 0
    assert 4_000 < found["throttle-time", "anna"] <= 5_000
    assert found["EventQueueSize", ""] == 0
    assert {one.group for one in told(cluster)} == {"ControllerMutation", "ControllerEventManager"}


async def test_q9_events_that_wait_are_counted(cluster: Cluster) -> None:
    cluster.quorum.latency_s = 1.0
    clients = [
        asyncio.ensure_future(Client(cluster, user="User:berta").create(1, name=f"t{number}"))
        for number in range(5)
    ]
    await pass_time(0.5)
    (queued,) = (one.value for one in told(cluster) if one.name == "EventQueueSize")
    assert queued == 4
    await asyncio.gather(*clients)


async def test_q15_the_next_controller_gives_no_second_burst(cluster: Cluster) -> None:
    anna = Client(cluster)
    assert await anna.create(20) == [errors_pb2.NONE]
    await cluster.active.resign()
    await cluster.at_rest()
    assert await anna.create(20, name="u") == [errors_pb2.NONE], "the bucket may go negative"
    assert await anna.create(1, name="v") == [OVER]
