"""The folder of a local cluster: configuration files, ports, cluster.json."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.broker.config.spec import quorum_security
from quorate.broker.security.config_file import load_config
from quorate.cli.main import run
from quorate.cluster.certificates import admin_security
from quorate.cluster.cluster_ports import PortReservation
from quorate.cluster.layout import Node, load_nodes, plan_cluster, with_settings, write_config
from quorate.cluster.local import LocalCluster
from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.cluster.processes import is_ours
from quorate.cluster.settings import Settings, check_settings
from quorate.cluster.state import read_pids, remove_state, write_state
from quorate.cluster.state_file import read_state
from quorate.common.configuration import ConfigError
from quorate.quorum.quorum_config import load_quorum_config


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def quiet(message: str) -> None:
    pass


def make(folder: Path, *, voters: int = 3, brokers: int = 2, port: int = 0) -> LocalCluster:
    return LocalCluster.create(
        folder,
        voters=voters,
        brokers=brokers,
        port=port,
        settings=Settings(),
        progress=quiet,
        attached=False,
    )


def test_configuration_files_are_what_the_processes_understand(tmp_path: Path) -> None:
    cluster = make(tmp_path / 'odd "name"')
    for node in cluster.voters:
        config = load_quorum_config(node.config_path, {})
        assert config.voter_id == node.id
        assert str(config.own.grpc) == node.grpc_address
        assert len(config.voters) == 3
        assert config.security() is not None
    for node in cluster.brokers:
        assert quorum_security(load_config(node.config_path, {})) is not None


def test_who_wants_plain_text_says_so_once(tmp_path: Path) -> None:
    cluster = make(tmp_path)
    assert admin_security(tmp_path) is not None
    cluster.change_settings(check_settings({"security.protocol": "PLAINTEXT"}))
    for node in cluster.voters:
        assert load_quorum_config(node.config_path, {}).security() is None
    for node in cluster.brokers:
        assert quorum_security(load_config(node.config_path, {})) is None
    assert admin_security(tmp_path) is None


@pytest.mark.parametrize("key", ["quorum.security.protocol", "ssl.keystore.location"])
def test_certificates_are_the_clusters_own_business(key: str) -> None:
    with pytest.raises(ConfigError, match="set by the local cluster itself"):
        check_settings({key: "x"})


def test_a_broker_speaks_plain_text_on_loopback_only(tmp_path: Path) -> None:
    broker = make(tmp_path).brokers[0]
    plain = {"quorum.security.protocol": "PLAINTEXT"}
    load_config(broker.config_path, plain)
    with pytest.raises(ConfigError, match=r"quorum\.bootstrap\.servers names 10\.0\.0\.1: use SSL"):
        load_config(broker.config_path, {**plain, "quorum.bootstrap.servers": "10.0.0.1:7101"})
    with pytest.raises(ConfigError, match=r"quorum\.ssl\.keystore\.location is missing"):
        load_config(broker.config_path, {"quorum.ssl.keystore.location": ""})


def test_the_same_folder_is_the_same_cluster(tmp_path: Path) -> None:
    made = make(tmp_path)
    found = LocalCluster.find(tmp_path, quiet, attached=False)
    assert found is not None
    assert found.nodes == made.nodes
    assert found.bootstrap == made.bootstrap


def test_a_folder_without_a_cluster_is_none(tmp_path: Path) -> None:
    assert LocalCluster.find(tmp_path, quiet, attached=False) is None
    assert LocalCluster.find(tmp_path / "absent", quiet, attached=False) is None


def test_more_than_nine_brokers_keep_their_order(tmp_path: Path) -> None:
    make(tmp_path, voters=1, brokers=11)
    assert [node.id for node in load_nodes(tmp_path)] == [1, *range(1, 12)]


def test_brokers_are_numbered_from_the_first_id_on(tmp_path: Path) -> None:
    nodes = plan_cluster(
        tmp_path,
        voters=1,
        brokers=4,
        port=0,
        settings=Settings(),
        cluster_id="c",
        brokers_per_host=2,
        first_broker_id=0,
    )
    brokers = [node for node in nodes if node.kind == "broker"]
    assert [node.id for node in brokers] == [0, 1, 2, 3]
    assert [node.config["broker.id"] for node in brokers] == [0, 1, 2, 3]
    assert [node.rack for node in brokers] == ["host-1", "host-1", "host-2", "host-2"]


def test_a_cluster_keeps_its_first_broker_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, voters=1, brokers=1)
    assert run(["up", "--data", str(tmp_path), "--first-broker-id", "0"]) == 1
    assert "made with --first-broker-id 1, not 0" in capsys.readouterr().err


def test_brokers_get_the_ports_from_the_base_on(tmp_path: Path) -> None:
    with PortReservation() as ports:
        base = ports.claim_any()
    nodes = plan_cluster(
        tmp_path, voters=1, brokers=2, port=base, settings=Settings(), cluster_id="c"
    )
    kafka = [node.ports["Kafka"] for node in nodes if node.kind == "broker"]
    assert kafka == [base, base + 1]
    every_port = [port for node in nodes for port in node.ports.values()]
    assert len(set(every_port)) == len(every_port)


def test_a_taken_port_is_named_and_nothing_is_written(tmp_path: Path, taken_port: int) -> None:
    with pytest.raises(LocalClusterError, match=rf"port {taken_port} .*broker 1.*--port"):
        make(tmp_path / "data", port=taken_port)
    assert not (tmp_path / "data").exists()


def test_a_port_taken_since_is_named_with_the_file_that_sets_it(
    tmp_path: Path, taken_port: int
) -> None:
    cluster = make(tmp_path, voters=1, brokers=1)
    broker = cluster.brokers[0]
    moved = Settings(broker={"listeners": f"PLAINTEXT://127.0.0.1:{taken_port}"})
    write_config(with_settings(broker, moved))
    found = LocalCluster.find(tmp_path, quiet, attached=False)
    assert found is not None
    with pytest.raises(LocalClusterError, match=rf"port {taken_port} .*broker-1\.toml"):
        found.start()
    assert read_state(tmp_path) is None


def test_a_renamed_configuration_file_is_refused(tmp_path: Path) -> None:
    cluster = make(tmp_path, voters=1, brokers=1)
    cluster.brokers[0].config_path.rename(tmp_path / "config" / "broker-7.toml")
    with pytest.raises(ConfigError, match=r"broker-7\.toml: broker\.id=1"):
        load_nodes(tmp_path)


def test_cluster_json_has_the_shape_that_scripts_read(tmp_path: Path) -> None:
    cluster = make(tmp_path, voters=1, brokers=2)
    voter, first, second = cluster.nodes
    write_state(tmp_path, cluster.nodes, {("quorum", 1): 11, ("broker", 1): 21, ("broker", 2): 22})
    assert json.loads((tmp_path / "cluster.json").read_text()) == {
        "bootstrap": f"{first.kafka_address},{second.kafka_address}",
        "quorum": [
            {"id": 1, "pid": 11, "address": voter.grpc_address, "metrics": voter.metrics_address}
        ],
        "brokers": [
            {
                "id": node.id,
                "pid": pid,
                "kafka": node.kafka_address,
                "grpc": node.grpc_address,
                "metrics": node.metrics_address,
                "log_dir": str(tmp_path / f"broker-{node.id}"),
            }
            for node, pid in ((first, 21), (second, 22))
        ],
    }
    assert read_pids(tmp_path) == {("quorum", 1): 11, ("broker", 1): 21, ("broker", 2): 22}
    assert json.loads((tmp_path / "prometheus.json").read_text()) == [
        {"targets": [node.metrics_address], "labels": {"kind": node.kind, "id": str(node.id)}}
        for node in cluster.nodes
    ]
    remove_state(tmp_path)
    assert read_pids(tmp_path) == {}
    assert not (tmp_path / "prometheus.json").exists()


def test_cluster_json_names_the_console(tmp_path: Path) -> None:
    nodes = plan_cluster(
        tmp_path,
        voters=1,
        brokers=2,
        port=0,
        settings=Settings(),
        cluster_id="c",
        has_console=True,
    )
    first, second = (node.console_url for node in nodes if node.kind == "broker")
    assert first.startswith("http://127.0.0.1:")
    write_state(tmp_path, nodes, {("broker", 1): 21, ("broker", 2): 22})
    state = json.loads((tmp_path / "cluster.json").read_text())
    assert state["console"] == first
    assert [broker["console"] for broker in state["brokers"]] == [first, second]
    assert "http.authentication" not in nodes[1].config


def test_people_log_in_to_the_console_where_clients_have_to(tmp_path: Path) -> None:
    key = "listener.security.protocol.map"
    nodes = plan_cluster(
        tmp_path,
        voters=1,
        brokers=1,
        port=0,
        settings=Settings(broker={key: "PLAINTEXT:SASL_PLAINTEXT"}),
        cluster_id="c",
        has_console=True,
    )
    assert nodes[1].config["http.authentication"] == "BASIC"


def test_a_broken_cluster_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(LocalClusterError, match=r"cluster\.json"):
        read_state(tmp_path)
    (tmp_path / "cluster.json").write_text("[]")
    with pytest.raises(LocalClusterError, match=r"cluster\.json"):
        read_state(tmp_path)


def test_a_pid_of_somebody_else_is_not_ours(tmp_path: Path) -> None:
    cluster = make(tmp_path, voters=1, brokers=1)
    broker = cluster.brokers[0]
    assert not is_ours(os.getpid(), broker.config_path)
    write_state(tmp_path, cluster.nodes, {("quorum", 1): os.getpid(), ("broker", 1): os.getpid()})
    found = LocalCluster.find(tmp_path, quiet, attached=False)
    assert found is not None
    assert found.running() == []
    assert found.stop() == []
    assert read_state(tmp_path) is None


def test_settings_go_to_whoever_knows_the_key() -> None:
    settings = check_settings({"log.level": "DEBUG", "log.flush": "os"})
    assert settings.quorum == {"log.level": "DEBUG"}
    assert settings.broker == {"log.level": "DEBUG", "log.flush": "os"}


def test_settings_are_typed_and_kept_in_the_folder(tmp_path: Path) -> None:
    make(tmp_path, voters=1, brokers=1).change_settings(
        check_settings({"num.partitions": "4", "auto.create.topics.enable": "false"})
    )
    _, broker = load_nodes(tmp_path)
    assert broker.config["num.partitions"] == 4
    assert broker.config["auto.create.topics.enable"] is False


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'log\.flus': did you mean log\.flush\?"):
        check_settings({"log.flus": "os"})


def test_configuration_files_are_their_owners_alone(tmp_path: Path) -> None:
    node = Node("broker", 1, {"delegation.token.secret.key": "s3cret"}, tmp_path)
    for _ in range(2):
        write_config(node)
        assert node.config_path.stat().st_mode & 0o777 == 0o600
