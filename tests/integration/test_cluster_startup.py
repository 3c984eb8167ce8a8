"""Processes that must not start: the message names the thing, the value, and what to do."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from quorate.common.configuration import read_toml
from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.common.tls.identity import Role
from quorate.testing import RunningCluster, running_cluster
from tests.support.disk_faults import without_privileges

pytestmark = pytest.mark.integration

EXIT_TIMEOUT_S = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=1, voters=1) as cluster:
        yield cluster


@pytest.fixture
def broker_config(cluster: RunningCluster, tmp_path: Path) -> dict[str, object]:
    """Configuration of one more broker of the cluster, on free ports."""
    running = read_toml(cluster.folder / "config" / "broker-1.toml")
    return {
        **running,
        "broker.id": 9,
        "log.dir": str(tmp_path / "log"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "grpc.listener": "127.0.0.1:0",
        "inter.broker.listener": "127.0.0.1:0",
        "metrics.listener": "",
        **certificate(cluster, 9),
    }


def certificate(cluster: RunningCluster, broker_id: int) -> dict[str, object]:
    """Configuration of a broker's certificate, signed by the cluster's authority."""
    authority = CertificateAuthority.open(cluster.folder / "certs")
    authority.issue_node(Role.BROKER, broker_id)
    return {
        "quorum.ssl.keystore.location": str(authority.folder / f"broker-{broker_id}.pem"),
        "quorum.ssl.truststore.location": str(authority.truststore),
    }


def write_config(path: Path, config: Mapping[str, object]) -> Path:
    quoted = (f'"{k}" = {v}' if isinstance(v, int) else f'"{k}" = "{v}"' for k, v in config.items())
    path.write_text("\n".join(quoted) + "\n", encoding="utf-8")
    return path


def node_command(kind: str, config: Path) -> list[str]:
    return [sys.executable, "-m", "quorate.cli.main", "node", kind, "--config", str(config)]


def run_node(
    tmp_path: Path,
    kind: str,
    config: Mapping[str, object],
    *arguments: str,
    before: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a node to its end; what it said is in ``stderr``. ``before``: what runs the command."""
    path = tmp_path / f"{kind}.toml"
    quoted = (f'"{k}" = {v}' if isinstance(v, int) else f'"{k}" = "{v}"' for k, v in config.items())
    path.write_text("\n".join(quoted) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "quorate.cli.main", "node", kind, "--config", str(path)]
    return subprocess.run(
        [*before, *command, *arguments],
        capture_output=True,
        text=True,
        timeout=EXIT_TIMEOUT_S,
        check=False,
    )


def assert_refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize("key", ["listeners", "grpc.listener", "inter.broker.listener"])
def test_broker_whose_port_is_taken_says_which(
    tmp_path: Path, broker_config: dict[str, object], key: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        address = f"127.0.0.1:{port}"
        broker_config[key] = f"PLAINTEXT://{address}" if key == "listeners" else address
        assert_refused(run_node(tmp_path, "broker", broker_config), str(port))


def test_broker_refuses_the_data_folder_of_another_node_id(
    cluster: RunningCluster, tmp_path: Path, broker_config: dict[str, object]
) -> None:
    with running_cluster(brokers=1, voters=1, folder=tmp_path / "other") as other:
        other.stop_broker(1)
        broker_config["quorum.bootstrap.servers"] = other.voter_grpc_address(1)
        broker_config["log.dir"] = str(other.folder / "broker-1")
        broker_config.update(certificate(other, 9))
        assert_refused(run_node(tmp_path, "broker", broker_config), "broker-1", "9", "1")


def test_broker_refuses_the_data_folder_of_another_cluster(
    cluster: RunningCluster, tmp_path: Path, broker_config: dict[str, object]
) -> None:
    with running_cluster(brokers=1, voters=1, folder=tmp_path / "other") as other:
        other.stop_broker(1)
        broker_config["broker.id"] = 1
        broker_config["log.dir"] = str(other.folder / "broker-1")
        broker_config.update(certificate(cluster, 1))
        result = run_node(tmp_path, "broker", broker_config)
        foreign = read_toml(other.folder / "config" / "quorum-1.toml")["cluster.id"]
    assert_refused(result, cluster.status().cluster_id, str(foreign))


def test_data_folder_in_use_is_refused(
    cluster: RunningCluster, tmp_path: Path, broker_config: dict[str, object]
) -> None:
    broker_config["log.dir"] = str(cluster.folder / "broker-1")
    broker_config["broker.id"] = 1
    broker_config.update(certificate(cluster, 1))
    assert_refused(run_node(tmp_path, "broker", broker_config), "broker-1")
    assert cluster.broker_pid(1) is not None


def test_broker_whose_log_folder_is_a_file_says_so(
    tmp_path: Path, broker_config: dict[str, object]
) -> None:
    (tmp_path / "log").touch()
    result = run_node(tmp_path, "broker", broker_config)
    assert_refused(result, f"data folder {tmp_path / 'log'}", "File exists")


@pytest.mark.parametrize("what", ["folder", "lock", "segment", "table"])
def test_broker_whose_log_folder_is_read_only_says_which(
    tmp_path: Path, broker_config: dict[str, object], what: str
) -> None:
    folder = tmp_path / "log"
    with running_cluster(brokers=1, voters=1, folder=tmp_path / "own") as own:
        own.stop_broker(1)
        broker_config["quorum.bootstrap.servers"] = own.voter_grpc_address(1)
        broker_config.update(certificate(own, 1))
        broker_config["broker.id"] = 1
        shutil.move(own.folder / "broker-1", folder)
        names = {"lock": ".lock", "segment": "segment-*.mdb", "table": "store.mdb", "folder": "."}
        (path,) = folder.glob(names[what]) if what != "folder" else (folder,)
        path.chmod(path.stat().st_mode & ~0o222)
        try:
            result = run_node(tmp_path, "broker", broker_config, before=without_privileges())
        finally:
            folder.chmod(0o755)
    assert_refused(result, str(folder), "Permission denied")
    assert len(result.stderr.strip().splitlines()[-1]) < 500


def test_voter_refuses_the_data_folder_of_another_cluster(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    with running_cluster(brokers=1, voters=1, folder=tmp_path / "other") as other:
        config = read_toml(other.folder / "config" / "quorum-1.toml")
        other.kill_voter(1)
        config["cluster.id"] = "another-cluster"
        assert_refused(run_node(tmp_path, "quorum", config), "another-cluster")


@pytest.mark.parametrize("kind", ["broker", "quorum"])
def test_unknown_key_is_refused_with_the_nearest_known(
    cluster: RunningCluster, tmp_path: Path, broker_config: dict[str, object], kind: str
) -> None:
    voter_config = read_toml(cluster.folder / "config" / "quorum-1.toml")
    config = broker_config if kind == "broker" else voter_config
    result = run_node(tmp_path, kind, config, "--set", "log.levl=INFO")
    assert_refused(result, "log.levl", "log.level")


def test_value_of_the_wrong_type_is_refused(
    tmp_path: Path, broker_config: dict[str, object]
) -> None:
    broker_config["replica.lag.time.max.ms"] = "soon"
    result = run_node(tmp_path, "broker", broker_config)
    assert_refused(result, "replica.lag.time.max.ms", "soon", "whole number")


def test_broker_without_a_quorum_waits_with_a_message_and_gives_up_clearly(
    tmp_path: Path, broker_config: dict[str, object]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
    broker_config["quorum.bootstrap.servers"] = address
    broker_config["quorum.connect.timeout.ms"] = 4_000
    result = run_node(tmp_path, "broker", broker_config)
    assert_refused(result, address)
    assert result.stderr.count(address) >= 2, "said while waiting, and at the end"


def test_broker_with_the_id_of_a_live_one_waits_and_says_whom_for(
    cluster: RunningCluster, tmp_path: Path, broker_config: dict[str, object]
) -> None:
    """The registration may be its own, of a process that died a second ago: so it waits."""
    broker_config["broker.id"] = 1
    broker_config.update(certificate(cluster, 1))
    path = write_config(tmp_path / "second.toml", broker_config)
    before = cluster.status().broker(1)
    with subprocess.Popen(
        node_command("broker", path), stderr=subprocess.PIPE, text=True, bufsize=1
    ) as second:
        assert second.stderr is not None
        said = next(line for line in second.stderr if "registered by another" in line)
        second.terminate()
    assert cluster.broker_address(1) in said
    assert second.returncode == 0
    assert cluster.status().broker(1) == before
