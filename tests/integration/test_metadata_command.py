"""``quorate metadata`` against a real cluster: through a broker, and from the quorum itself."""

import json
import re
import subprocess
from collections.abc import Iterator

import pytest

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.cli import command, quorate, quorate_error, quorate_json
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=2) as cluster:
        with cluster.admin() as admin:
            new = NewTopic(name="orders", assignments=[(1, 2), (2, 1)])
            admin.create_topics([new])[0].raise_for_error()
        yield cluster


@pytest.fixture(params=["broker", "quorum"])
def at(request: pytest.FixtureRequest, cluster: RunningCluster) -> tuple[str, str]:
    if request.param == "broker":
        return "--bootstrap-server", cluster.bootstrap
    return "--data", str(cluster.folder)


def test_paths_are_listed_read_and_found(cluster: RunningCluster, at: tuple[str, str]) -> None:
    assert quorate("metadata", "ls", "/brokers/ids", *at).split() == ["1", "2"]
    leader_and_isr = "/brokers/topics/orders/1/leaderAndISR"
    record = quorate_json("metadata", "get", leader_and_isr, *at)
    assert (record["leader"], record["isr"]) == (2, [2, 1])
    assert quorate("metadata", "tree", "/brokers/topics/orders", *at).count("leaderAndISR") == 2
    found = quorate_json("metadata", "find", "*/orders/*/leaderAndISR", "--where", "leader=2", *at)
    assert found == [leader_and_isr]
    assert "nothing is recorded at /brokers" in quorate_error("metadata", "get", "/brokers", *at)
    assert "there is nothing at /nowhere" in quorate_error("metadata", "ls", "/nowhere", *at)


def test_the_log_is_read_from_its_beginning_and_as_it_was(cluster: RunningCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap)
    words = command(
        "metadata", "tail", "--from-offset", "0", "--timeout-ms", "20000", "--json", *at
    )
    transactions = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            transactions.append(json.loads(line))
            if "topic_created" in line:
                break
        process.kill()
    offsets = [one["offset"] for one in transactions]
    assert offsets == sorted(set(offsets))
    kinds = {
        kind: one["offset"]
        for one in reversed(transactions)
        for operation in one["operations"]
        for record in operation["records"]
        for kind in record
    }
    assert {"quorum_voter_set", "broker_registration", "controller_claim"} <= set(kinds)
    created = kinds["topic_created"]
    now = ("metadata", "at", "/brokers/topics", "--offset")
    assert "/brokers/topics/orders" in quorate_json(*now, str(created), *at)
    from_quorum = ("--data", str(cluster.folder))
    assert quorate_json(*now, str(created - 1), *from_quorum) == {}
    assert "not written yet" in quorate_error(*now, "999999", *at)


def test_the_history_of_a_path_is_told(cluster: RunningCluster, at: tuple[str, str]) -> None:
    below = quorate("metadata", "history", "/brokers/topics/orders", "--json", *at)
    created = [json.loads(line) for line in below.splitlines()]
    assert [one["key"] for one in created] == [
        "/brokers/topics/orders",
        "/brokers/topics/orders/0/leaderAndISR",
        "/brokers/topics/orders/1/leaderAndISR",
    ]
    assert (created[1]["old"], created[1]["new"]["replicas"]) == (None, [1, 2])
    assert created[0]["principal"]
    words = quorate("metadata", "history", "/controller", *at)
    assert re.search(r"T.*Z?  /controller  controller_claim  by broker [12] ", words)
    assert "controller_epoch" not in words
    assert quorate("metadata", "history", "/brokers/topics/order", *at) == ""


def test_e5_tail_shows_an_election_as_it_happens(cluster: RunningCluster) -> None:
    at = ("--data", str(cluster.folder))
    words = command("metadata", "tail", "--timeout-ms", "20000", "--json", *at)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            before = cluster.status()
            while True:
                # Sessions come and go with every command: it listens once it has seen one.
                quorate("metadata", "rm", "/controller", "--data", str(cluster.folder))
                line = process.stdout.readline()
                if "controller" in line or "session_opened" in line:
                    break
            wait_until(
                lambda: cluster.status().controller_epoch > before.controller_epoch,
                "another controller",
            )
        finally:
            process.kill()


def test_e5_removing_controller_forces_an_election(
    cluster: RunningCluster, at: tuple[str, str]
) -> None:
    wait_until(lambda: cluster.controller_id() >= 0, "a controller")
    before = cluster.status()
    assert f"epoch {before.controller_epoch} is over" in quorate(
        "metadata", "rm", "/controller", *at
    )
    wait_until(
        lambda: (
            cluster.status().controller_epoch > before.controller_epoch
            and cluster.controller_id() >= 0
        ),
        "another controller",
    )


def test_e5_another_brokers_id_in_controller_hands_the_office_over(
    cluster: RunningCluster, at: tuple[str, str]
) -> None:
    wait_until(lambda: cluster.controller_id() >= 0, "a controller")
    before = cluster.status()
    other = 3 - before.controller_id
    content = json.dumps({"version": 1, "brokerid": other, "timestamp": "0"})
    epoch = before.controller_epoch + 1
    said = quorate("metadata", "set", "/controller", content, *at)
    assert said == f"broker {other} is the controller, epoch {epoch}\n"
    wait_until(lambda: cluster.controller_id() == other, "the other broker in office")
    assert cluster.status().controller_epoch == epoch
    assert quorate_json("metadata", "get", "/controller", *at)["brokerid"] == other
    with cluster.admin() as admin:
        new = NewTopic(name=f"by-{other}-{epoch}", num_partitions=1, replication_factor=1)
        admin.create_topics([new])[0].raise_for_error()
    error = quorate_error("metadata", "set", "/controller", "7", *at)
    assert "broker 7 is not registered; live brokers: 1, 2" in error
