"""Administration through any broker of a real cluster, and by one controller after another."""

import asyncio

import pytest

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from quorate_proto.v1 import errors_pb2
from tests.support.forwarded_changes import (
    CREATE_ACLS,
    INCREMENTAL,
    QUOTAS,
    TOPIC,
    endpoint,
    error_codes,
    quota,
    reader,
    setting,
    written,
)
from tests.support.kafka_wire import Values, WireClient, read_answer, request_frame, sized
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

DELETE_ACLS, ALTER_CONFIGS = 31, 33
CREATE_TOKEN, RENEW_TOKEN, EXPIRE_TOKEN = 38, 39, 40
WORKERS = 6
CHANGES = 24
"""By two workers at each of three brokers."""


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    running = module_quorate_cluster(brokers=3, offsets_topic_num_partitions=50)
    with running.admin() as admin:
        topics = [NewTopic(name=f"t{number}", assignments=[(1, 2, 3)]) for number in range(WORKERS)]
        for result in admin.create_topics(topics):
            result.raise_for_error()
    for number in range(WORKERS):
        wait_until_known(running, f"t{number}", 1)
    return running


def replacing(topic: str, **values: str) -> Values:
    configs = [{"name": key.replace("_", "."), "value": value} for key, value in values.items()]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
    return {"resources": [resource], "validate_only": False}


ACL_FILTER: Values = {
    "resource_type_filter": TOPIC,
    "resource_name_filter": "t0",
    "pattern_type_filter": 3,
    "principal_filter": "User:ann",
    "host_filter": "*",
    "operation": 3,
    "permission_type": 3,
}
FORWARDED: dict[str, tuple[int, int, Values]] = {
    "AlterConfigs": (ALTER_CONFIGS, 2, replacing("t0", min_insync_replicas="2")),
    "IncrementalAlterConfigs": (INCREMENTAL, 1, setting("t0", min_insync_replicas="1")),
    "of an unknown topic": (INCREMENTAL, 1, setting("none", min_insync_replicas="1")),
    "of an unknown key": (INCREMENTAL, 1, setting("t0", no_such_key="1")),
    "CreateAcls": (CREATE_ACLS, 3, {"creations": [reader("User:ann", "t0")]}),
    "DeleteAcls": (DELETE_ACLS, 3, {"filters": [ACL_FILTER]}),
    "AlterClientQuotas": (QUOTAS, 1, quota("ann", producer_byte_rate=1e6)),
    "of an unknown quota": (QUOTAS, 1, quota("ann", no_such_rate=1e6)),
    "CreateDelegationToken": (
        CREATE_TOKEN,
        3,
        {
            "owner_principal_type": "",
            "owner_principal_name": "",
            "renewers": [],
            "max_lifetime": -1,
        },
    ),
    "RenewDelegationToken": (RENEW_TOKEN, 2, {"hmac": b"none", "renew_period": 1_000}),
    "ExpireDelegationToken": (EXPIRE_TOKEN, 2, {"hmac": b"none", "expiry_time_period": -1}),
}
"""The eight APIs of the bridge release, and some of their refusals."""


@pytest.mark.parametrize("name", FORWARDED)
def test_f1_each_broker_answers_the_same(cluster: RunningCluster, name: str) -> None:
    key, version, values = FORWARDED[name]

    async def codes(broker_id: int) -> list[int]:
        client = await WireClient.connect(endpoint(cluster, broker_id))
        answer = await client.ask(key, version, values)
        await client.close()
        return error_codes(answer)

    found = [asyncio.run(codes(broker_id)) for broker_id in cluster.broker_ids]
    assert found[0]
    assert found == [found[0]] * 3
    refused = name.startswith("of ")
    assert not refused or errors_pb2.NONE not in found[0]
    assert refused or errors_pb2.NOT_CONTROLLER not in found[0]


def test_f2_the_bridges_own_version_is_the_controllers_alone(cluster: RunningCluster) -> None:
    """IncrementalAlterConfigs 2, which upstream does not have: laid out as version 1."""
    controller = cluster.controller_id()

    async def code(broker_id: int) -> int:
        client = await WireClient.connect(endpoint(cluster, broker_id))
        frame = bytearray(request_frame(INCREMENTAL, 1, setting("t1", min_insync_replicas="1")))
        frame[2:4] = (2).to_bytes(2, "big")
        client.send_bytes(sized(bytes(frame)))
        _, answer = read_answer(INCREMENTAL, 1, await client.answer())
        await client.close()
        return int(answer.responses[0].error_code)

    codes = {broker_id: asyncio.run(code(broker_id)) for broker_id in cluster.broker_ids}
    not_here = errors_pb2.NOT_CONTROLLER
    assert codes == {one: 0 if one == controller else not_here for one in cluster.broker_ids}


def test_f4_coordinators_have_their_topic_created(cluster: RunningCluster) -> None:
    async def port(broker_id: int) -> tuple[int, int]:
        client = await WireClient.connect(endpoint(cluster, broker_id))
        asked = {"key_type": 0, "coordinator_keys": ["a group"]}
        answer = await client.ask(10, 4, asked)
        await client.close()
        (one,) = answer.coordinators
        return int(one.error_code), int(one.node_id)

    told = {asyncio.run(port(broker_id)) for broker_id in cluster.broker_ids}
    ((code, coordinator),) = told
    assert code == 0
    assert coordinator in cluster.broker_ids
    with cluster.admin() as admin:
        (topic,) = admin.describe_topics(["__consumer_offsets"])
    assert len(topic.partitions) == 50
    assert {len(one.replicas) for one in topic.partitions} == {3}


def test_f3_a_broker_that_was_away_learns_of_changes_made_by_two_controllers(
    cluster: RunningCluster,
) -> None:
    controller = cluster.controller_id()
    away = next(one for one in cluster.broker_ids if one != controller)

    async def set_one(broker_id: int, key: str, value: str) -> list[int]:
        client = await WireClient.connect(endpoint(cluster, broker_id))
        answer = await client.ask(INCREMENTAL, 1, setting("t5", **{key: value}))
        await client.close()
        return error_codes(answer)

    async def configs(broker_id: int) -> dict[str, str]:
        client = await WireClient.connect(endpoint(cluster, broker_id))
        keys = ["min.insync.replicas", "max.message.bytes"]
        resource = {"resource_type": TOPIC, "resource_name": "t5", "configuration_keys": keys}
        asked = {
            "resources": [resource],
            "include_synonyms": False,
            "include_documentation": False,
        }
        answer = await client.ask(32, 4, asked)
        await client.close()
        return {one.name: one.value for one in answer.results[0].configs}

    cluster.stop_broker(away)
    assert asyncio.run(set_one(controller, "min_insync_replicas", "2")) == [0]
    with cluster.admin() as admin:
        admin.resign_controller()
    wait_until(
        lambda: cluster.controller_id() not in (-1, controller, away), "the other controller"
    )
    assert asyncio.run(set_one(controller, "max_message_bytes", "54321")) == [0]
    cluster.restart_broker(away)
    wait_until_whole(cluster)
    expected = {"min.insync.replicas": "2", "max.message.bytes": "54321"}
    assert asyncio.run(configs(away)) == expected


def test_f6_at_level_1_each_broker_writes_by_itself(
    quorate_cluster: ClusterFactory,
) -> None:
    """Six writers at three brokers at once, each change decided again until it is in."""
    running = quorate_cluster(brokers=3, config={"inter.broker.protocol.version": 1})
    with running.admin() as admin:
        admin.create_topics([NewTopic(name="t", assignments=[(1, 2, 3)])])[0].raise_for_error()
    wait_until_known(running, "t", 1)

    async def write(worker: int) -> None:
        broker_id = running.broker_ids[worker % 3]
        client = await WireClient.connect(endpoint(running, broker_id))
        for number in range(worker, CHANGES, WORKERS):
            values = quota(f"one-{number}", producer_byte_rate=1.0 + number)
            client.send_bytes(sized(request_frame(QUOTAS, 1, values, client_id=f"one-{number}")))
            _, answer = read_answer(QUOTAS, 1, await client.answer())
            assert error_codes(answer) == [errors_pb2.NONE]
        await client.close()

    async def write_all() -> None:
        await asyncio.gather(*map(write, range(WORKERS)))

    asyncio.run(write_all())
    log = written(running, "one-")
    assert {name: len(operations) for name, operations in log.items()} == {
        f"one-{number}": 1 for number in range(CHANGES)
    }
    by_broker = [len(file.read_text().splitlines()) for file in running.folder.glob("**/audit.log")]
    assert len(by_broker) == 3
    assert min(by_broker) >= CHANGES // 3, "each broker wrote what it was asked"
