"""Names that are paths, hold NUL, look like others or are very long: no file is made of them.

And as many partitions as one user can make: ``max.broker.partitions`` says when it is enough.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.hostile_requests.wire import Wire
from bench.hostile_requests.world import ROOT, world
from quorate.testing import RunningCluster
from quorate_proto.v1 import errors_pb2
from tests.support.waiting import let_time_pass

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PARTITIONS_MAX = 60
CANARY = "quorate-escaped"
NAMES = [
    f"../{CANARY}",
    f"../../../../tmp/{CANARY}",
    f"/tmp/{CANARY}",
    f"..\\{CANARY}",
    f"{CANARY}\0.log",
    f"{CANARY}\r\n\x1b[2J",
    "..",
    ".",
    "",
    "v\u0456ctim",  # Its second letter is Cyrillic.
    "\uff0e\uff0e\uff0f" + CANARY,  # Full-width dots and slash, which some normalize.
    "\u202e" + CANARY,
    "x" * 250,
    "x" * 32_767,
    "%2e%2e%2f" + CANARY,
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    settings = {"max.broker.partitions": PARTITIONS_MAX, "log.flush": "os"}
    with world(1, settings, partitions=5) as cluster:
        yield cluster


@pytest.fixture
def root(cluster: RunningCluster) -> Iterator[Wire]:
    with Wire(cluster.bootstrap, ROOT) as wire:
        yield wire


def files_of(cluster: RunningCluster) -> list[str]:
    """Every path below the folder of the cluster, and what stands beside it."""
    found = [str(path) for path in cluster.folder.parent.iterdir()]
    for where, _, names in os.walk(cluster.folder):
        found += [os.path.join(where, name) for name in names]
    return found


def assert_nothing_escaped(cluster: RunningCluster) -> None:
    found = files_of(cluster)
    assert not [path for path in found if CANARY in path or "xxxxxxxx" in path]
    assert not Path("/tmp", CANARY).exists()


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:30]))
def test_no_topic_has_such_a_name(cluster: RunningCluster, root: Wire, name: str) -> None:
    topic = {
        "name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [],
        "configs": [],
    }  # fmt: skip
    created = root.ask(19, 4, {"topics": [topic], "timeout": 10_000, "validate_only": False})
    assert [one.error_code for one in created.topics] == [errors_pb2.INVALID_TOPIC_EXCEPTION]
    asked = root.ask(3, 4, {"topics": [{"name": name}], "allow_auto_topic_creation": True})
    assert [one.error_code for one in asked.topics] == [errors_pb2.INVALID_TOPIC_EXCEPTION]
    assert_nothing_escaped(cluster)


@pytest.mark.parametrize("name", list(filter(None, NAMES)), ids=lambda name: ascii(name[:30]))
def test_groups_and_transactions_of_such_names_are_names_alone(
    cluster: RunningCluster, root: Wire, name: str
) -> None:
    """Kafka takes any text for them; here, too, they are keys in a log and never paths."""
    partition = {
        "partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1,
        "committed_metadata": name[:100],
    }  # fmt: skip
    commit = {
        "group_id": name, "generation_id_or_member_epoch": -1, "member_id": "",
        "topics": [{"name": "victim", "partitions": [partition]}],
    }  # fmt: skip
    committed = root.ask(8, 6, commit)
    codes = {one.error_code for topic in committed.topics for one in topic.partitions}
    assert codes == {errors_pb2.NONE}, codes
    begun = root.ask(22, 1, {"transactional_id": name, "transaction_timeout": 60_000})
    assert begun.error_code == errors_pb2.NONE
    topics = [{"name": "victim", "partition_indexes": [0]}]
    fetched = root.ask(9, 5, {"group_id": name, "topics": topics})
    assert [one.committed_offset for topic in fetched.topics for one in topic.partitions] == [7]
    others = root.ask(9, 5, {"group_id": "victim", "topics": topics})
    assert [one.committed_offset for topic in others.topics for one in topic.partitions] == [0]
    assert_nothing_escaped(cluster)


def create(root: Wire, first: int, count: int) -> list[tuple[int, str | None]]:
    """So many topics of one partition: error code and message of each."""
    topics = [
        {"name": f"many-{n}", "num_partitions": 1, "replication_factor": 1, "assignments": [],
         "configs": []}
        for n in range(first, first + count)
    ]  # fmt: skip
    answer = root.ask(19, 4, {"topics": topics, "timeout": 30_000, "validate_only": False})
    return [(one.error_code, one.error_message) for one in answer.topics]


def test_one_user_cannot_make_more_partitions_than_a_broker_may_hold(
    cluster: RunningCluster, root: Wire
) -> None:
    with cluster.admin() as admin:
        before = admin.cluster_status().partitions
    found = create(root, 0, PARTITIONS_MAX)
    made = [code for code, _ in found if code == errors_pb2.NONE]
    refused = [(code, text) for code, text in found if code != errors_pb2.NONE]
    assert len(made) == PARTITIONS_MAX - before
    assert {code for code, _ in refused} == {errors_pb2.POLICY_VIOLATION}
    assert f"max.broker.partitions allows {PARTITIONS_MAX}" in str(refused[0][1])
    more = {
        "topics": [{"name": "victim", "count": 6, "assignments": None}],
        "timeout": 10_000,
        "validate_only": False,
    }
    (result,) = root.ask(37, 1, more).results
    assert result.error_code == errors_pb2.POLICY_VIOLATION
    deleted = root.ask(20, 3, {"topic_names": ["many-0"], "timeout": 30_000})
    assert [one.error_code for one in deleted.responses] == [errors_pb2.NONE]
    while create(root, 1_000, 1)[0][0] == errors_pb2.POLICY_VIOLATION:
        let_time_pass(0.05, "the deletion may be complete")
