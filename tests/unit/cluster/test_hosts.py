"""Brokers of one host: racks, and numbers that do not fit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.cli.main import run
from quorate.cluster.hosts import shared_hosts_warning
from quorate.cluster.layout import load_nodes
from quorate.cluster.local import LocalCluster
from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.cluster.settings import check_settings
from quorate.cluster.state import write_state

Say = Callable[[str], None]


def make(
    folder: Path,
    brokers: int,
    brokers_per_host: int | None,
    say: Say = lambda said: None,
    **settings: str,
) -> LocalCluster:
    return LocalCluster.create(
        folder,
        voters=1,
        brokers=brokers,
        port=0,
        settings=check_settings({key.replace("_", "."): value for key, value in settings.items()}),
        progress=say,
        attached=False,
        brokers_per_host=brokers_per_host,
    )


def test_brokers_of_a_host_are_in_one_rack(tmp_path: Path) -> None:
    made = make(tmp_path, 6, 2)
    racks = [node.rack for node in load_nodes(tmp_path) if node.kind == "broker"]
    assert racks == ["host-1", "host-1", "host-2", "host-2", "host-3", "host-3"]
    assert made.brokers_per_host == 2


def test_without_hosts_no_broker_has_a_rack(tmp_path: Path) -> None:
    made = make(tmp_path, 2, None)
    assert [node.rack for node in made.brokers] == ["", ""]
    assert made.brokers_per_host is None


@pytest.mark.parametrize(
    ("brokers", "each", "said"),
    [(5, 2, "--brokers 4 or --brokers 6"), (2, 4, "give --brokers 4")],
)
def test_hosts_that_would_differ_are_refused_before_anything_is_written(
    tmp_path: Path, brokers: int, each: int, said: str
) -> None:
    with pytest.raises(LocalClusterError, match=said):
        make(tmp_path / "data", brokers, each)
    assert not (tmp_path / "data").exists()


def test_a_rack_of_ones_own_contradicts_hosts(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match=r"leave --set broker\.rack out"):
        make(tmp_path / "data", 2, 1, broker_rack="mine")


def test_too_few_hosts_are_said_to_share_replicas(tmp_path: Path) -> None:
    said: list[str] = []
    make(tmp_path, 4, 2, said.append)
    (warning,) = said
    assert "there are 2 hosts: replicas of one partition share a host" in warning
    assert "--brokers 6 makes 3 hosts" in warning


def test_enough_hosts_are_not_warned_of() -> None:
    assert shared_hosts_warning(6, 2, {}) is None
    assert shared_hosts_warning(1, 1, {}) is None, "internal topics get as many as there are"
    fewer = {
        "offsets.topic.replication.factor": 2,
        "transaction.state.log.replication.factor": 2,
    }
    assert shared_hosts_warning(4, 2, fewer) is None
    warning = shared_hosts_warning(6, 2, {"default.replication.factor": 4})
    assert warning is not None
    assert "default.replication.factor is 4, and there are 3 hosts" in warning


@pytest.mark.parametrize(
    ("made", "wanted", "said"),
    [(2, "1", "made with --brokers-per-host 2, not 1"), (None, "2", "made without")],
)
def test_a_cluster_keeps_its_hosts(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    made: int | None,
    wanted: str,
    said: str,
) -> None:
    make(tmp_path, 2, made)
    assert run(["up", "--data", str(tmp_path), "--brokers-per-host", wanted]) == 1
    assert said in capsys.readouterr().err


def test_cluster_json_does_not_tell_hosts(tmp_path: Path) -> None:
    made = make(tmp_path, 2, 1)
    write_state(tmp_path, made.nodes, {("broker", 1): 21})
    assert "rack" not in (tmp_path / "cluster.json").read_text()
