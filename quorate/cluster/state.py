"""``DIR/cluster.json``: the processes of a running cluster. Scripts read it: its shape is fixed.
Beside it ``DIR/prometheus.json``: where their figures are, for Prometheus' ``file_sd_configs``.

{"bootstrap": "h:p,h:p", "quorum": [{"id", "pid", "address"}],
 "brokers": [{"id", "pid", "kafka", "grpc", "log_dir"}]}
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from broker.config.log import LOG_DIR
from quorate.cluster.layout import Kind, Node, write_atomically
from quorate.cluster.state_file import STATE_NAME, read_state

__all__ = ["STATE_NAME", "read_pids", "remove_state", "write_state"]

TARGETS_NAME: Final = "prometheus.json"
_LISTS: Final[Mapping[Kind, str]] = {"quorum": "quorum", "broker": "brokers"}


def write_state(folder: Path, nodes: Sequence[Node], pids: Mapping[tuple[Kind, int], int]) -> None:
    """Writes cluster.json; nodes without a pid are not listed."""
    running = [node for node in nodes if (node.kind, node.id) in pids]
    brokers = [node for node in running if node.kind == "broker"]
    state = {
        "bootstrap": ",".join(node.kafka_address for node in brokers),
        "quorum": [
            {"id": node.id, "pid": pids[node.kind, node.id], "address": node.grpc_address}
            for node in running
            if node.kind == "quorum"
        ],
        "brokers": [
            {
                "id": node.id,
                "pid": pids[node.kind, node.id],
                "kafka": node.kafka_address,
                "grpc": node.grpc_address,
                "log_dir": node.config[LOG_DIR.name],
            }
            for node in brokers
        ],
    }
    targets = [
        {"targets": [node.metrics_address], "labels": {"kind": node.kind, "id": str(node.id)}}
        for node in running
        if node.metrics_address
    ]
    write_atomically(folder / TARGETS_NAME, json.dumps(targets, indent=2) + "\n")
    write_atomically(folder / STATE_NAME, json.dumps(state, indent=2) + "\n")


def read_pids(folder: Path) -> dict[tuple[Kind, int], int]:
    """Process ids by node, as last written; empty if there is no cluster.json."""
    state: Mapping[str, Any] = read_state(folder) or {}
    return {
        (kind, entry["id"]): entry["pid"]
        for kind, name in _LISTS.items()
        for entry in state.get(name, ())
    }


def remove_state(folder: Path) -> None:
    """Says that the cluster is down."""
    for name in (STATE_NAME, TARGETS_NAME):
        (folder / name).unlink(missing_ok=True)
