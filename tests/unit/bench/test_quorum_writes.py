"""The quorum benchmark's figures have names, and are compared with the default."""

import json
from pathlib import Path

from bench._support import Bench
from bench.peers.comparison import ETCD, PLAIN, QUORATE, Comparison


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
