"""Changes that wait together: decided in order, written at once, answered each for itself."""

import asyncio
from collections.abc import Sequence

import pytest

from quorate.broker.changes.table import (
    CREATE_DELEGATION_TOKEN,
    INCREMENTAL_ALTER_CONFIGS,
    RENEW_DELEGATION_TOKEN,
)
from quorate.broker.controller import command_pipeline
from quorate.metadata_log.records import ChangeNote, ConfigSet, Operation
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.controller.cluster import Cluster

KEY = "min.insync.replicas"


def context(user: str) -> admin_pb2.RequestContext:
    return admin_pb2.RequestContext(principal_name=f"User:{user}")


def setting(
    topic: str, values: dict[str, str], user: str = "ann", appended: dict[str, str] | None = None
) -> admin_pb2.IncrementalAlterConfigsRequest:
    change = admin_pb2.ConfigChange(
        entity_type="topic", entity_name=topic, values=values, appended=appended
    )
    return admin_pb2.IncrementalAlterConfigsRequest(context=context(user), changes=[change])


async def asked_together(
    cluster: Cluster, requests: Sequence[admin_pb2.IncrementalAlterConfigsRequest]
) -> list[admin_pb2.IncrementalAlterConfigsResponse]:
    controller = cluster.active
    return await asyncio.gather(
        *(controller.perform(INCREMENTAL_ALTER_CONFIGS, one) for one in requests)
    )


def written(cluster: Cluster) -> list[list[Operation]]:
    """Operations of each transaction that changes a configuration."""
    return [
        list(transaction.operations)
        for _, transaction in cluster.quorum.log
        if any(isinstance(r, ConfigSet) for o in transaction.operations for r in o.records)
    ]


@pytest.fixture(autouse=True)
async def _topic(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (1, 2, 3))


async def test_changes_that_wait_together_share_a_transaction(cluster: Cluster) -> None:
    requests = [setting("orders", {KEY: str(1 + n % 3)}, f"user{n}") for n in range(20)]
    answers = await asked_together(cluster, requests)
    assert all(not one.error_code and not one.results[0].error_code for one in answers)
    assert [len(one) for one in written(cluster)] == [20]
    assert cluster.image.config("topic", "orders")[KEY] == "2", "the last one's"


async def test_a_change_that_is_alone_does_not_wait_for_others(cluster: Cluster) -> None:
    begun_s = asyncio.get_running_loop().time()
    await asked_together(cluster, [setting("orders", {KEY: "2"})])
    assert asyncio.get_running_loop().time() - begun_s < 3 * cluster.quorum.latency_s


async def test_those_that_come_meanwhile_make_the_next_round(cluster: Cluster) -> None:
    clock, answered_s = asyncio.get_running_loop().time, []

    async def first_ones() -> None:
        await asked_together(cluster, [setting("orders", {KEY: str(n)}) for n in (2, 3)])
        answered_s.append(clock())

    begun_s = clock()
    first = asyncio.create_task(first_ones())
    await pass_time(cluster.quorum.latency_s / 2)
    await asked_together(cluster, [setting("orders", {KEY: str(n)}) for n in (1, 3, 2)])
    await first
    assert [len(one) for one in written(cluster)] == [2, 3]
    assert answered_s[0] - begun_s < 1.5 * cluster.quorum.latency_s, "not held up by the next round"


async def test_each_is_decided_on_what_those_before_it_leave_behind(cluster: Cluster) -> None:
    """Two that each add an item to a list: none of the items is lost."""
    throttled = "leader.replication.throttled.replicas"
    requests = [setting("orders", {}, appended={throttled: f"0:{n}"}) for n in (1, 2, 3)]
    await asked_together(cluster, requests)
    assert cluster.image.config("topic", "orders")[throttled] == "0:1,0:2,0:3"
    assert len(written(cluster)) == 1


async def test_one_refusal_is_its_own(cluster: Cluster) -> None:
    requests = [
        setting("orders", {KEY: "2"}),
        setting("gone", {KEY: "2"}),
        setting("orders", {"no.such.key": "1"}),
        setting("orders", {"max.message.bytes": "7"}),
    ]
    answers = await asked_together(cluster, requests)
    assert [one.results[0].error_code for one in answers] == [
        errors_pb2.NONE,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.INVALID_CONFIG,
        errors_pb2.NONE,
    ]
    assert dict(cluster.image.config("topic", "orders")) == {KEY: "2", "max.message.bytes": "7"}


async def test_f5_each_has_its_own_note(cluster: Cluster) -> None:
    users = ["ann", "bob", "carl"]
    await asked_together(
        cluster, [setting("orders", {KEY: str(n + 1)}, u) for n, u in enumerate(users)]
    )
    (operations,) = written(cluster)
    notes = [r.principal for o in operations for r in o.records if isinstance(r, ChangeNote)]
    assert notes == ["User:ann", "User:bob", "User:carl"]


async def test_an_exception_of_one_decision_is_its_own(cluster: Cluster) -> None:
    cluster.token_keys = (b"key",)
    controller = cluster.active
    create = admin_pb2.CreateDelegationTokenRequest
    good, bad, renewal = await asyncio.gather(
        controller.perform(CREATE_DELEGATION_TOKEN, create(context=context("ann"))),
        controller.perform(
            CREATE_DELEGATION_TOKEN, create(context=context("ann"), renewers=["Group:x"])
        ),
        controller.perform(
            RENEW_DELEGATION_TOKEN,
            admin_pb2.RenewDelegationTokenRequest(context=context("ann"), hmac=b"forged"),
        ),
    )
    assert good.error_code == errors_pb2.NONE
    assert bad.error_code == errors_pb2.INVALID_PRINCIPAL_TYPE
    assert renewal.error_code == errors_pb2.DELEGATION_TOKEN_NOT_FOUND
    assert list(cluster.image.tokens) == [good.token.token_id]


async def test_a_token_renewed_by_two_at_once_is_renewed_twice(cluster: Cluster) -> None:
    """The second is decided on a version that the first is yet to have."""
    cluster.token_keys = (b"key",)
    controller = cluster.active
    made = await controller.perform(
        CREATE_DELEGATION_TOKEN, admin_pb2.CreateDelegationTokenRequest(context=context("ann"))
    )
    renewal = admin_pb2.RenewDelegationTokenRequest(context=context("ann"), hmac=made.hmac)
    answers = await asyncio.gather(
        *(controller.perform(RENEW_DELEGATION_TOKEN, renewal) for _ in range(3))
    )
    assert [one.error_code for one in answers] == [errors_pb2.NONE] * 3


async def test_a_round_is_limited_so_that_broker_failures_need_not_wait_for_a_flood(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_pipeline, "OPERATIONS_PER_ROUND", 3)
    await asked_together(cluster, [setting("orders", {KEY: str(1 + n % 2)}) for n in range(7)])
    assert [len(one) for one in written(cluster)] == [3, 3, 1]


async def test_without_a_quorum_everyone_of_the_round_is_told(cluster: Cluster) -> None:
    cluster.quorum.available = False
    requests = [setting(topic, {KEY: "2"}) for topic in ("orders", "orders", "gone")]
    answers = await asked_together(cluster, requests)
    assert [one.results[0].error_code for one in answers] == [
        errors_pb2.REQUEST_TIMED_OUT,
        errors_pb2.REQUEST_TIMED_OUT,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    cluster.quorum.available = True


async def test_e3_everyone_of_the_round_of_a_deposed_controller_is_sent_on(
    cluster: Cluster,
) -> None:
    former = cluster.active
    requests = [setting("orders", {KEY: "2"}) for _ in range(3)]
    asked = asyncio.gather(*(former.perform(INCREMENTAL_ALTER_CONFIGS, one) for one in requests))
    cluster.hand_over(1, 2)
    not_controller = errors_pb2.NOT_CONTROLLER
    assert [one.error_code for one in await asked] == [not_controller] * 3
    assert not written(cluster) or not cluster.image.config("topic", "orders")
