"""The quorum benchmark leaves out what is not installed, and says so; its figures have names."""

import json
from pathlib import Path

import pytest

from bench._support import Bench
from bench.peers.comparison import ETCD, PLAIN, QUORATE, Comparison
from bench.quorum_writes import installed_peers


def test_a_peer_that_is_not_installed_is_left_out_with_one_line_that_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ETCD", raising=False)
    assert installed_peers() == []
    etcd, zookeeper = capsys.readouterr().out.splitlines()
    assert etcd.startswith("etcd is left out: no 'etcd' on the PATH")
    assert zookeeper.startswith("ZooKeeper is left out: no java on the PATH")


def test_a_wrong_location_of_a_peer_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    java = tmp_path / "java"
    java.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ETCD", str(tmp_path / "no-etcd"))
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path / "no-zookeeper"))
    assert installed_peers() == []
    etcd, zookeeper = capsys.readouterr().out.splitlines()
    assert str(tmp_path / "no-etcd") in etcd
    assert f"ZOOKEEPER_HOME={tmp_path / 'no-zookeeper'}" in zookeeper


def test_figures_are_in_the_file_by_name_with_the_ratio_of_the_default(tmp_path: Path) -> None:
    report = tmp_path / "figures.json"
    bench = Bench("Quorum writes", quick=True, json_path=report, repetitions=1)
    table = Comparison(bench)
    table.row("ops/s, 10 in flight", {QUORATE: 6_000.0, PLAIN: 7_000.0, ETCD: 3_000.0}, "≥ 2 x")
    bench.finish()
    assert json.loads(report.read_text())["figures"] == {
        "ops/s, 10 in flight: quorate": 6_000.0,
        "ops/s, 10 in flight: quorate plain": 7_000.0,
        "ops/s, 10 in flight: etcd": 3_000.0,
        "ops/s, 10 in flight: x etcd": 2.0,
    }
