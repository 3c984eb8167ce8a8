"""Reads ``DIR/cluster.json`` and loads nothing else: most commands need no more."""

import json
from pathlib import Path
from typing import Any, Final

from quorate.cluster.local_cluster_errors import LocalClusterError

STATE_NAME: Final = "cluster.json"


def read_state(folder: Path) -> dict[str, Any] | None:
    """Return the content of cluster.json, or None if there is no such file.

    Raises:
        LocalClusterError: the file cannot be read or is not what ``quorate up`` writes.
    """
    path = folder / STATE_NAME
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LocalClusterError(f"cannot read {path}: {error}") from error
    if not isinstance(state, dict) or not isinstance(state.get("bootstrap"), str):
        raise LocalClusterError(f"{path} is not a cluster.json written by `quorate up`")
    return state
