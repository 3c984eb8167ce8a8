"""The command line against real processes: a cluster from up to down, and what happens between."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.metadata_log.features import NEWEST_INTER_BROKER_PROTOCOL, NEWEST_METADATA_VERSION
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from tests.support.cli import (
    alive,
    cluster_json,
    cluster_pids,
    command,
    quorate,
    quorate_error,
    quorate_json,
    running,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

SMALL = ("--quorum", "1", "--brokers", "1", "--port", "0")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A data folder whose cluster is stopped at the end."""
    data = tmp_path / "data"
    yield data
    if (data / "cluster.json").exists():
        quorate("down", "--data", str(data))


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    return module_quorate_cluster(group_initial_rebalance_delay_ms=0)


def test_a_cluster_from_up_to_down_and_up_again(folder: Path) -> None:
    data = ("--data", str(folder))
    quorate("up", *data, *SMALL, "--detach")

    state = cluster_json(folder)
    assert set(state) == {"bootstrap", "quorum", "brokers", "console"}
    assert [set(voter) for voter in state["quorum"]] == [{"id", "pid", "address", "metrics"}]
    (broker,) = state["brokers"]
    assert set(broker) == {"id", "pid", "kafka", "grpc", "metrics", "console", "log_dir"}
    assert state["bootstrap"] == broker["kafka"]
    status = quorate_json("status", *data)
    assert status["controller_id"] == 1
    assert status["controller_epoch"] == 1
    assert status["quorum_leader"] == 1
    assert [broker["id"] for broker in status["brokers"]] == [1]
    assert status["brokers"][0]["epoch"] > 0
    assert not status["offline_partitions"]
    assert not status["under_replicated_partitions"]

    quorate("topics", "create", *data, "--topic", "kept", "--partitions", "2")
    quorate("produce", *data, "--topic", "kept", "--partition", "1", stdin=b"one\ntwo\n")
    assert "already running" in quorate_error("up", *data, "--detach")

    pids = cluster_pids(folder)
    quorate("down", *data)
    assert alive(pids) == []
    assert not (folder / "cluster.json").exists()

    quorate("up", *data, "--detach")
    again = quorate_json("status", *data)
    assert again["cluster_id"] == status["cluster_id"]
    assert again["controller_epoch"] == 2
    assert cluster_json(folder)["bootstrap"] == state["bootstrap"]
    read = ("--topic", "kept", "--from-beginning", "--max-messages", "2")
    assert quorate("consume", *data, *read) == "one\ntwo\n"


def test_up_with_another_shape_is_refused(folder: Path) -> None:
    data = ("--data", str(folder))
    quorate("up", *data, *SMALL, "--detach")
    assert "--brokers 1, not 3" in quorate_error("up", *data, "--brokers", "3", "--detach")


def test_up_starts_what_was_killed(folder: Path) -> None:
    data = ("--data", str(folder))
    quorate("up", *data, *SMALL, "--detach")
    voter, broker = cluster_pids(folder)
    os.kill(broker, signal.SIGKILL)
    wait_until(lambda: not alive([broker]), "the end of the broker")
    quorate("up", *data, "--detach")
    assert cluster_pids(folder)[0] == voter
    assert cluster_pids(folder)[1] != broker


def test_ctrl_c_in_the_foreground_stops_everything(folder: Path) -> None:
    up = ("up", "--data", str(folder), *SMALL)
    with running(*up, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert b"up in" in process.stdout.readline()
        pids = cluster_pids(folder)
        assert alive(pids) == pids
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert alive(pids) == []
    assert not (folder / "cluster.json").exists()


def test_a_killed_foreground_leaves_no_process(folder: Path) -> None:
    up = ("up", "--data", str(folder), *SMALL)
    with running(*up, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        pids = cluster_pids(folder)
        process.kill()
    wait_until(lambda: not alive(pids), "the end of all processes")


def test_a_process_that_dies_while_starting_is_shown_with_its_log(folder: Path) -> None:
    data = ("--data", str(folder))
    quorate("up", *data, *SMALL, "--detach")
    quorate("down", *data)
    config = folder / "config" / "broker-1.toml"
    config.write_text(config.read_text().replace('"broker.id" = 1', '"broker.id" = 1\nnonsense'))
    error = quorate_error("up", *data, "--detach")
    assert "broker-1.toml" in error
    config.write_text(config.read_text().replace("\nnonsense", '\n"log.level" = "LOUD"'))
    error = quorate_error("up", *data, "--detach")
    assert "broker 1 ended with exit code" in error
    assert "log.level=LOUD" in error
    assert not (folder / "cluster.json").exists()


def test_c4_topics_are_created_listed_described_and_deleted(cluster: RunningCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap)
    created = quorate_json(
        "topics", "create", *at, "--topic", "flights", "--partitions", "3",
        "--replication-factor", "1", "--config", "min.insync.replicas=1",
    )  # fmt: skip
    assert created["num_partitions"] == 3
    again = ("topics", "create", *at, "--topic", "flights", "--partitions", "3")
    assert "TOPIC_ALREADY_EXISTS" in quorate_error(*again)
    assert quorate(*again, "--if-not-exists") == "Topic flights already exists.\n"
    assert "flights" in quorate_json("topics", "list", *at)
    (topic,) = quorate_json("topics", "describe", *at, "--topic", "flights")
    assert topic["topic_id"] == created["topic_id"]
    assert [partition["leader"] for partition in topic["partitions"]] == [1, 1, 1]
    assert "Leader: 1\tReplicas: 1\tIsr: 1" in quorate(
        "topics", "describe", *at, "--topic", "flights"
    )
    quorate("topics", "delete", *at, "--topic", "flights")
    assert "flights" not in quorate_json("topics", "list", *at)
    gone = ("topics", "delete", *at, "--topic", "flights")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in quorate_error(*gone)
    assert quorate(*gone, "--if-exists") == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--topic", "no/slash"), "no/slash"),
        (("--topic", "wide", "--replication-factor", "3"), "INVALID_REPLICATION_FACTOR"),
        (("--topic", "odd", "--config", "min.insync.replica=2"), "min.insync.replica"),
    ],
)
def test_a_refused_topic_is_one_line_that_names_it(
    cluster: RunningCluster, options: tuple[str, ...], said: str
) -> None:
    error = quorate_error("topics", "create", "--bootstrap-server", cluster.bootstrap, *options)
    assert said in error
    assert error.count("\n") == 1


def test_produce_and_consume_with_keys_offsets_and_json(cluster: RunningCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap, "--topic", "notes")
    quorate("topics", "create", *at, "--partitions", "1")
    delivered = quorate_json("produce", *at, "--key-separator", ":", stdin=b"a:1\nb:2\nc:3\n")
    assert (delivered["produced"], delivered["acknowledged"], delivered["failed"]) == (3, 3, 0)
    everything = ("consume", *at, "--from-beginning", "--max-messages", "3")
    assert quorate(*everything, "--key-separator", "=") == "a=1\nb=2\nc=3\n"
    one = ("--partition", "0", "--offset", "1", "--max-messages", "1")
    record = quorate_json("consume", *at, *one)
    assert (record["key"], record["value"], record["offset"]) == ("b", "2", 1)
    assert quorate("consume", *at, "--offset", "latest", "--timeout-ms", "300") == ""


def test_a_refused_record_is_named_with_what_refuses_it(cluster: RunningCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap, "--topic", "keyed")
    quorate("topics", "create", *at, "--config", "cleanup.policy=compact")
    told = quorate_error("produce", *at, stdin=b"no key\n")
    assert "record 1 has no key, and the topic is compacted (cleanup.policy)" in told


def test_records_go_both_ways_with_headers_and_nothing_is_lost(cluster: RunningCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap, "--topic", "both-ways")
    quorate("topics", "create", *at, "--partitions", "2")
    lines = b"trace:1\tk:\xff\xfe\ntrace:2\tk:two\noops\n"
    words = ("--header", "from=me", "--parse-headers", "--key-separator", ":")
    told = quorate_error("produce", *at, *words, stdin=lines)
    assert (
        "line 3 has no tab after its headers: 'oops'; the 2 records before it are written" in told
    )
    everything = ("consume", *at, "--from-beginning", "--exit-eof")
    first, second = map(json.loads, quorate(*everything, "--json").splitlines())
    assert first["value_base64"] == "//4="
    assert first["headers"] == [["from", "me"], ["trace", "1"]]
    assert second["value"] == "two"
    last = ("consume", *at, "--offset", "-1", "--exit-eof", "--headers", "--output", "hex")
    assert quorate(*last) == "from:6d65,trace:32\t74776f\n"


def test_a_group_prints_what_it_has_not_printed_before(cluster: RunningCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap, "--topic", "grouped")
    quorate("topics", "create", *at, "--partitions", "1")
    quorate("produce", *at, stdin=b"one\ntwo\n")
    group = ("consume", *at, "--group", "printers", "--from-beginning")
    assert quorate(*group, "--max-messages", "1") == "one\n"
    assert quorate(*group, "--exit-eof") == "two\n"
    described = quorate_json("groups", "describe", *at[:2], "--all-groups")
    assert [(one["group"], one["lag"]) for one in described] == [("printers", 0)]


def test_ctrl_c_ends_produce_with_130_and_says_what_was_written(cluster: RunningCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap, "--topic", "interrupted")
    quorate("topics", "create", *at, "--partitions", "1")
    with subprocess.Popen(
        command("produce", *at), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        wait_until(
            lambda: quorate("consume", *at, "--from-beginning", "--exit-eof") == "one\ntwo\n",
            "the records to be written",
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b"2 of 2 records acknowledged\n"


def test_consuming_what_is_not_there_is_one_clear_line(cluster: RunningCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap)
    error = quorate_error("consume", *at, "--topic", "nowhere", "--from-beginning")
    assert "topic 'nowhere'" in error
    quorate("topics", "create", *at, "--topic", "short", "--partitions", "1")
    error = quorate_error("consume", *at, "--topic", "short", "--partition", "9")
    assert "has no partition 9" in error
    error = quorate_error(
        "consume", *at, "--topic", "short", "--partition", "0", "--offset", "77",
        "--timeout-ms", "20000",
    )  # fmt: skip
    assert "short-0" in error


def test_a_closed_pipe_ends_consume_quietly(cluster: RunningCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap, "--topic", "piped")
    quorate("topics", "create", *at, "--partitions", "1")
    quorate("produce", *at, stdin=b"line\n" * 5_000)
    with running("consume", *at, "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        quorate("produce", *at, stdin=b"more\n" * 5_000)
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


def test_ctrl_c_ends_consume_with_130(cluster: RunningCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap, "--topic", "watched")
    quorate("topics", "create", *at, "--partitions", "1")
    quorate("produce", *at, stdin=b"first\n")
    with running("consume", *at, "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b""


def test_e5_controller_resign_makes_the_next_epoch(cluster: RunningCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap)
    before = quorate_json("controller", "describe", *at)
    after = quorate_json("controller", "resign", *at)
    assert after["controller_epoch"] == before["controller_epoch"] + 1
    assert quorate_json("controller", "describe", *at) == after


def test_e5_controller_move_names_the_next_and_refuses_strangers(cluster: RunningCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap)
    before = quorate_json("controller", "describe", *at)
    itself = str(before["controller_id"])
    assert quorate_json("controller", "move", "--to", itself, *at) == before
    error = quorate_error("controller", "move", "--to", "9", *at)
    assert "broker 9 is not registered; live brokers: 1" in error


def test_b4_feature_levels_are_shown_raised_and_lowered(cluster: RunningCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap)

    def level() -> int:
        found = {one["name"]: one for one in quorate_json("features", "describe", *at)}
        versions = (found["metadata_version"]["level"], found["metadata_version"]["newest"])
        assert versions == (NEWEST_METADATA_VERSION, NEWEST_METADATA_VERSION)
        protocol: int = found["inter_broker_protocol"]["level"]
        return protocol

    one = ("--feature", "inter_broker_protocol", "--level")
    assert level() == NEWEST_INTER_BROKER_PROTOCOL
    assert "downgrade" in quorate_error("features", "upgrade", *one, "1", *at)
    quorate("features", "downgrade", *one, "1", *at)
    assert level() == 1
    assert "could be at level 2" in quorate("features", "upgrade", *one, "2", "--dry-run", *at)
    quorate("features", "upgrade", *at)
    assert level() == NEWEST_INTER_BROKER_PROTOCOL
    assert "metadata_version cannot go back" in quorate_error(
        "features", "downgrade", "--feature", "metadata_version", "--level", "1", *at
    )


def test_a_broker_without_quorum_waits_with_a_message_and_then_gives_up(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(
        f'"broker.id" = 1\n"log.dir" = "{tmp_path / "log"}"\n'
        '"quorum.bootstrap.servers" = "127.0.0.1:1"\n"listeners" = "PLAINTEXT://127.0.0.1:0"\n'
        '"quorum.security.protocol" = "PLAINTEXT"\n'
    )
    error = quorate_error(
        "node", "broker", "--config", str(config), "--set", "quorum.connect.timeout.ms=1500"
    )
    assert "127.0.0.1:1" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("kind", ["quorum", "broker"])
def test_a_data_folder_of_another_node_is_refused(folder: Path, kind: str) -> None:
    data = ("--data", str(folder))
    quorate("up", *data, *SMALL, "--detach")
    quorate("down", *data)
    own, other = folder / f"{kind}-1", folder / f"{kind}-2"
    own.rename(other)
    identity = other / "identity.json"
    key = '"node_id": 1' if '"node_id": 1' in identity.read_text() else '"node_id":1'
    identity.write_text(identity.read_text().replace(key, key[:-1] + "2"))
    other.rename(own)
    error = quorate_error("up", *data, "--detach")
    assert str(own) in error
    assert "2" in error
