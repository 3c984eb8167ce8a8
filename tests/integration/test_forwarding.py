"""Administration through any broker of a real cluster, and through the death of its controller."""

import asyncio
import json
import random
import subprocess
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from broker.kafka.apis import api_table
from metadata_log.types import Endpoint
from quorate.client.results import NewTopic
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from quorate_proto.v1 import errors_pb2
from tests.support.cli import command
from tests.support.kafka_wire import Values, WireClient, read_answer, request_frame, sized
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

CREATE_ACLS, DELETE_ACLS, ALTER_CONFIGS, INCREMENTAL, QUOTAS = 30, 31, 33, 44, 49
CREATE_TOKEN, RENEW_TOKEN, EXPIRE_TOKEN = 38, 39, 40
TOPIC = 2
WORKERS = 6


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    running = module_quorate_cluster(brokers=3)
    with running.admin() as admin:
        topics = [NewTopic(name=f"t{number}", assignments=[(1, 2, 3)]) for number in range(WORKERS)]
        for result in admin.create_topics(topics):
            result.raise_for_error()
    for number in range(WORKERS):
        wait_until_known(running, f"t{number}", 1)
    return running


def endpoint(cluster: RunningCluster, broker_id: int) -> Endpoint:
    host, _, port = cluster.broker_address(broker_id).rpartition(":")
    return Endpoint(host, int(port))


def setting(topic: str, **values: str) -> Values:
    configs = [
        {"name": key.replace("_", "."), "config_operation": 0, "value": value}
        for key, value in values.items()
    ]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
    return {"resources": [resource], "validate_only": False}


def replacing(topic: str, **values: str) -> Values:
    configs = [{"name": key.replace("_", "."), "value": value} for key, value in values.items()]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
    return {"resources": [resource], "validate_only": False}


def quota(user: str, **values: float) -> Values:
    ops = [{"key": key, "value": value, "remove": False} for key, value in values.items()]
    entry = {"entity": [{"entity_type": "user", "entity_name": user}], "ops": ops}
    return {"entries": [entry], "validate_only": False}


ACL: Values = {
    "resource_type": TOPIC,
    "resource_name": "t0",
    "resource_pattern_type": 3,
    "principal": "User:ann",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
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
    "CreateAcls": (CREATE_ACLS, 3, {"creations": [ACL]}),
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
    if key not in api_table():
        pytest.skip("not on the Kafka wire yet")

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


def error_codes(answer: Any) -> list[int]:  # noqa: ANN401 - any of kio's responses
    """Of the answer as a whole where it has one, else of its items."""
    if hasattr(answer, "error_code"):
        return [int(answer.error_code)]
    for field in ("responses", "results", "filter_results", "entries"):
        if hasattr(answer, field):
            return [int(one.error_code) for one in getattr(answer, field)]
    raise AssertionError(f"no error code in {answer}")


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

    for broker_id in cluster.broker_ids:
        assert asyncio.run(port(broker_id)) == (0, broker_id)
    with cluster.admin() as admin:
        (topic,) = admin.describe_topics(["__consumer_offsets"])
    assert len(topic.partitions) == 50
    assert {len(one.replicas) for one in topic.partitions} == {3}


class Streamed(NamedTuple):
    """What became of a stream of changes: error code by number; -1 where the connection broke."""

    codes: dict[int, int]

    @property
    def acknowledged(self) -> list[int]:
        return sorted(number for number, code in self.codes.items() if code == errors_pb2.NONE)


async def stream(at: Endpoint, count: int, prefix: str, half_way: Callable[[], None]) -> Streamed:
    """``count`` changes of two keys each, by clients of their own names; one topic per worker.

    ``half_way`` is called once, at some moment of it.
    """
    codes: dict[int, int] = {}
    moment = random.randrange(count // 4, count // 2)

    async def work(worker: int) -> None:
        client = await WireClient.connect(at)
        for number in range(worker, count, WORKERS):
            key, version, values = change(number, worker, prefix)
            frame = request_frame(key, version, values, client_id=f"{prefix}{number}")
            client.send_bytes(sized(frame))
            _, answer = read_answer(key, version, await client.answer())
            (codes[number],) = error_codes(answer)
            if len(codes) == moment:
                await asyncio.to_thread(half_way)
        await client.close()

    await asyncio.gather(*map(work, range(WORKERS)))
    return Streamed(codes)


def change(number: int, worker: int, prefix: str) -> tuple[int, int, Values]:
    if number // WORKERS % 2:
        rate = float(number + 1)
        return (
            QUOTAS,
            1,
            quota(f"{prefix}{number}", producer_byte_rate=rate, request_percentage=rate),
        )
    values = {
        "max_message_bytes": str(1_000_000 + number),
        "follower_replication_throttled_replicas": f"{number}:1",
    }
    return INCREMENTAL, 1, setting(f"t{worker}", **values)


class Written(NamedTuple):
    """One operation of the metadata log that somebody asked for."""

    principal: str
    api: str
    values: frozenset[str]


def written(cluster: RunningCluster, prefix: str) -> dict[str, list[Written]]:
    """What the metadata log has for each client id that begins with ``prefix``."""
    found: dict[str, list[Written]] = defaultdict(list)
    last = cluster.status().metadata_offset
    words = command(
        *("metadata", "tail", "--from-offset", "0", "--json"),
        *("--bootstrap-server", cluster.bootstrap),
    )
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            transaction = json.loads(line)
            for operation in transaction["operations"]:
                note, values = asked_for(operation)
                if note is not None and note["client_id"].startswith(prefix):
                    found[note["client_id"]].append(
                        Written(note["principal"], note["api"], frozenset(values))
                    )
            if transaction["offset"] >= last:
                break
        process.kill()
    return found


def asked_for(operation: dict[str, Any]) -> tuple[dict[str, Any] | None, list[str]]:
    """Its note, and the keys that it set; nothing if it was refused."""
    if operation["code"] != "OK":
        return None, []
    records = [pair for record in operation["records"] for pair in record.items()]
    notes = [fields for kind, fields in records if kind == "change_note"]
    keys = [fields["key"] for kind, fields in records if kind in ("config_set", "client_quota_set")]
    return (notes[0] if notes else None), keys


def check_stream(cluster: RunningCluster, count: int, prefix: str) -> None:
    """The controller is killed during a stream; what was acknowledged is there once and whole."""
    killed = cluster.controller_id()
    survivor = next(one for one in cluster.broker_ids if one != killed)
    at = endpoint(cluster, survivor)
    streamed = asyncio.run(stream(at, count, prefix, lambda: cluster.kill_broker(killed)))
    cluster.restart_broker(killed)
    wait_until_whole(cluster)
    assert len(streamed.codes) == count
    assert len(streamed.acknowledged) == count, "each was retried at the next controller"
    log = written(cluster, prefix)
    whole = {
        "IncrementalAlterConfigs": frozenset(
            {"max.message.bytes", "follower.replication.throttled.replicas"}
        ),
        "AlterClientQuotas": frozenset({"producer_byte_rate", "request_percentage"}),
    }
    for number in streamed.acknowledged:
        (one,) = log[f"{prefix}{number}"]
        assert one.principal == "User:ANONYMOUS"
        assert one.values == whole[one.api]
    assert set(log) == {f"{prefix}{number}" for number in streamed.acknowledged}
    check_audit(cluster, prefix, streamed)


def check_audit(cluster: RunningCluster, prefix: str, streamed: Streamed) -> None:
    """Each acknowledged change is in somebody's audit log, by the name of who asked."""
    audited: dict[str, set[str]] = defaultdict(set)
    files = list(cluster.folder.glob("**/audit.log"))
    for line in (line for file in files for line in file.read_text().splitlines()):
        entry = json.loads(line)
        if entry["result"] == "NONE" and entry["client_id"].startswith(prefix):
            audited[entry["client_id"]].add(entry["principal"])
            assert entry["controller_epoch"] > 0
            assert entry["forwarded_by"] in cluster.broker_ids or entry["forwarded_by"] == -1
    assert audited == {f"{prefix}{number}": {"User:ANONYMOUS"} for number in streamed.acknowledged}


def test_f3_f5_a_controller_dies_amid_changes_and_none_is_lost_doubled_or_halved(
    cluster: RunningCluster,
) -> None:
    check_stream(cluster, 120, "short-")


@pytest.mark.slow
def test_f3_f5_a_thousand_changes_and_the_controller_dies(cluster: RunningCluster) -> None:
    for run in range(3):
        check_stream(cluster, 1_000, f"long{run}-")


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
    cluster.wait_until(
        lambda: cluster.controller_id() not in (-1, controller, away), "the other controller"
    )
    assert asyncio.run(set_one(controller, "max_message_bytes", "54321")) == [0]
    cluster.restart_broker(away)
    wait_until_whole(cluster)
    expected = {"min.insync.replicas": "2", "max.message.bytes": "54321"}
    assert asyncio.run(configs(away)) == expected


@pytest.mark.slow
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
        for number in range(worker, 60, WORKERS):
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
        f"one-{number}": 1 for number in range(60)
    }
    by_broker = [len(file.read_text().splitlines()) for file in running.folder.glob("**/audit.log")]
    assert len(by_broker) == 3
    assert min(by_broker) >= 20, "each broker wrote what it was asked"
