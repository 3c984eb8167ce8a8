"""``DIR/cluster.json``, the processes of a running cluster, and ``DIR/prometheus.json``.

Scripts read cluster.json, so its shape is fixed. prometheus.json lists the addresses of the
metrics, for Prometheus' ``file_sd_configs``.

{"bootstrap": "h:p,h:p", "quorum": [{"id", "pid", "address", "metrics"}],
 "brokers": [{"id", "pid", "kafka", "grpc", "metrics", "log_dir"}],
 "registry": "http://h:p,http://h:p", "console": "http://h:p"}

"registry" has the URLs of the schema registry, and is missing where no broker serves it. "console"
is missing likewise, and brokers that serve the console have its URL beside the others.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from quorate.broker.config.log import LOG_DIR, LOG_DIRS
from quorate.cluster.layout import Node, NodeKind, write_atomically
from quorate.cluster.state_file import STATE_NAME, read_state

__all__ = ["STATE_NAME", "console_of", "read_pids", "remove_state", "write_state"]

TARGETS_NAME: Final = "prometheus.json"
_LISTS: Final[Mapping[NodeKind, str]] = {"quorum": "quorum", "broker": "brokers"}


def write_state(
    folder: Path, nodes: Sequence[Node], pids: Mapping[tuple[NodeKind, int], int]
) -> None:
    """Write cluster.json; nodes without a pid are not listed."""
    running = [node for node in nodes if (node.kind, node.id) in pids]
    brokers = [node for node in running if node.kind == "broker"]
    registry = ",".join(node.registry_url for node in brokers if node.registry_url)
    state: dict[str, Any] = {
        "bootstrap": ",".join(node.kafka_address for node in brokers),
        "quorum": [
            {
                "id": node.id,
                "pid": pids[node.kind, node.id],
                "address": node.grpc_address,
                "metrics": node.metrics_address,
            }
            for node in running
            if node.kind == "quorum"
        ],
        "brokers": [
            {
                "id": node.id,
                "pid": pids[node.kind, node.id],
                "kafka": node.kafka_address,
                "grpc": node.grpc_address,
                "metrics": node.metrics_address,
                "log_dir": _first_log_folder(node),
                **_console([node]),
            }
            for node in brokers
        ],
        **({"registry": registry} if registry else {}),
        **_console(brokers),
    }
    targets = [
        {"targets": [node.metrics_address], "labels": {"kind": node.kind, "id": str(node.id)}}
        for node in running
        if node.metrics_address
    ]
    write_atomically(folder / TARGETS_NAME, json.dumps(targets, indent=2) + "\n")
    write_atomically(folder / STATE_NAME, json.dumps(state, indent=2) + "\n")


def console_of(brokers: Sequence[Node]) -> str:
    """Return the URL of the first console of these brokers; empty if there is none."""
    return next((node.console_url for node in brokers if node.console_url), "")


def _console(brokers: Sequence[Node]) -> dict[str, str]:
    url = console_of(brokers)
    return {"console": url} if url else {}


def read_pids(folder: Path) -> dict[tuple[NodeKind, int], int]:
    """Return the process ids by node, as last written; empty if there is no cluster.json."""
    state: Mapping[str, Any] = read_state(folder) or {}
    return {
        (kind, entry["id"]): entry["pid"]
        for kind, name in _LISTS.items()
        for entry in state.get(name, ())
    }


def remove_state(folder: Path) -> None:
    """Remove the files, which says that the cluster is down."""
    for name in (STATE_NAME, TARGETS_NAME):
        (folder / name).unlink(missing_ok=True)


def _first_log_folder(node: Node) -> str:
    folders = str(node.config.get(LOG_DIRS.name) or node.config[LOG_DIR.name])
    return folders.split(",")[0]
