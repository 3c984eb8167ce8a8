"""Replicas move under acks=all load: nothing is lost, nothing is left behind (C11, scenario 19).

One cluster of four brokers for the whole file.
"""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from quorate.client.results import NewTopic, PartitionName, TopicInfo
from quorate.common.types import TopicId, TopicIdPartition
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import acked_load, assert_nothing_lost, consume_all
from tests.support.cli import quorate, quorate_error, quorate_json
from tests.support.stored_logs import stored_bytes
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PARTITIONS = 3
RECORDS_AROUND = 15

_topics = (f"moved-{number}" for number in count())


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=4, voters=1) as cluster:
        yield cluster


def create(cluster: RunningCluster, *assignments: tuple[int, ...], **configs: str) -> TopicInfo:
    name = next(_topics)
    with cluster.admin() as admin:
        new = NewTopic(
            name=name,
            assignments=assignments,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        admin.create_topics([new])[0].raise_for_error()
        return admin.describe_topics([name])[0]


def replicas(cluster: RunningCluster, topic: str) -> list[tuple[int, ...]]:
    with cluster.admin() as admin:
        return [one.replicas for one in admin.describe_topics([topic])[0].partitions]


@pytest.mark.slow
async def test_c11_s19_a_controller_dies_while_leaders_move_under_load(
    cluster: RunningCluster,
) -> None:
    controller = cluster.controller_id()
    leaves, stays, comes = (one for one in cluster.broker_ids if one != controller)
    topic = create(
        cluster,
        (leaves, stays, controller),
        (stays, leaves, controller),
        (controller, leaves, stays),
        min_insync_replicas="2",
    )
    targets = {
        PartitionName(topic=topic.name, partition=number): tuple(
            comes if one == leaves else one for one in topic.partitions[number].replicas
        )
        for number in range(PARTITIONS)
    }
    with (
        cluster.admin() as admin,
        acked_load(cluster.bootstrap, topic.name, PARTITIONS) as load,
    ):
        load.wait_for_more(RECORDS_AROUND)
        assert all(one.ok for one in admin.alter_partition_reassignments(targets))
        cluster.kill_broker(controller)
        load.wait_for_more(RECORDS_AROUND)
        ongoing = admin.list_partition_reassignments()
        assert {one.partition for one in ongoing} == set(range(PARTITIONS)), "one of each is away"
        cluster.restart_broker(controller)
        wait_until(lambda: not admin.list_partition_reassignments(), "the moves")
        load.wait_for_more(RECORDS_AROUND)
        acknowledged = load.stop()
    assert not acknowledged.failures
    assert_nothing_lost(acknowledged, consume_all(cluster.bootstrap, topic.name, PARTITIONS))
    assert replicas(cluster, topic.name) == list(targets.values())
    wait_until_whole(cluster)
    cluster.stop_broker(leaves)
    left = await stored_bytes(cluster.folder / f"broker-{leaves}")
    cluster.restart_broker(leaves)
    wait_until_whole(cluster)
    assert not [tip for tip in left if tip.topic_id == topic.topic_id]


@pytest.mark.slow
async def test_c11_a_broker_that_was_away_finds_out_at_its_start(cluster: RunningCluster) -> None:
    wait_until_whole(cluster)
    leaves, stays, comes = (one for one in cluster.broker_ids if one != cluster.controller_id())
    topic = create(cluster, (stays, leaves))
    cluster.stop_broker(leaves)
    name = PartitionName(topic=topic.name, partition=0)
    with cluster.admin() as admin:
        assert admin.alter_partition_reassignments({name: (comes, stays)})[0].ok
        wait_until(lambda: not admin.list_partition_reassignments(), "the move")
    tip = TopicIdPartition(TopicId(topic.topic_id), 0)
    assert tip in await stored_bytes(cluster.folder / f"broker-{leaves}")
    cluster.restart_broker(leaves)
    wait_until_whole(cluster)
    wait_until(
        lambda: any("deleted the replica" in line for line in cluster.broker_log(leaves, 500)),
        "the replica to be deleted",
    )
    cluster.stop_broker(leaves)
    left = await stored_bytes(cluster.folder / f"broker-{leaves}")
    cluster.restart_broker(leaves)
    assert tip not in left


@pytest.mark.slow
def test_c11_plans_are_made_carried_out_and_cancelled_on_the_command_line(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    wait_until_whole(cluster)
    topic = create(cluster, (1, 2), (2, 1))
    at = ("--bootstrap-server", cluster.bootstrap)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic.name}]}))
    words = ("--topics-to-move-json-file", str(topics), "--broker-list", "3,4")
    proposed = quorate_json("reassign", *at, "--generate", *words)["proposed"]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(proposed))
    file = ("--reassignment-json-file", str(plan))
    said = quorate("reassign", *at, "--execute", *file, "--throttle", "100000000", "--wait")
    assert f"Successfully started partition reassignments for {topic.name}-0" in said
    assert "2 of 2 partitions have moved" in said
    verified = quorate("reassign", *at, "--verify", *file)
    assert verified.count("is completed.") == 2
    assert "Clearing broker-level throttles on brokers 1,2,3,4" in verified
    assert {frozenset(one) for one in replicas(cluster, topic.name)} == {frozenset({3, 4})}
    assert "No partition reassignments found." in quorate("reassign", *at, "--list")
    assert "None of the specified" in quorate("reassign", *at, "--cancel", *file)
    plan.write_text(json.dumps(proposed).replace("[3, 4]", "[9, 4]").replace("[4, 3]", "[4, 9]"))
    assert "INVALID_REPLICA_ASSIGNMENT" in quorate_error("reassign", *at, "--execute", *file)


def test_c11_a_broker_is_emptied_or_it_is_said_why_not(cluster: RunningCluster) -> None:
    wait_until_whole(cluster)
    topic = create(cluster, (1, 2, 3), (2, 3, 4), (4, 1, 3))
    at = ("--bootstrap-server", cluster.bootstrap)
    proposed = json.loads(quorate("brokers", "decommission", "2", *at, "--dry-run"))
    moved = {
        (one["topic"], one["partition"]): tuple(one["replicas"]) for one in proposed["partitions"]
    }
    assert moved[topic.name, 0] == (1, 4, 3)
    assert moved[topic.name, 1] == (1, 3, 4)
    said = quorate("brokers", "decommission", "2", *at)
    assert "Broker 2 holds no replica any more: it may stop." in said
    assert replicas(cluster, topic.name) == [(1, 4, 3), (1, 3, 4), (4, 1, 3)]
    rows = quorate_json("brokers", "list", *at)
    assert [row["replicas"] for row in rows if row["id"] == 2] == [0]
    cluster.stop_broker(2)
    refused = quorate_error("brokers", "decommission", "3", *at)
    assert "broker 3 cannot be emptied: 2 other brokers [1, 4] are live" in refused
    cluster.restart_broker(2)
