"""Reading ``DIR/cluster.json`` without loading anything else: all that most commands need."""

import json
from pathlib import Path
from typing import Any, Final

from quorate.cluster.errors import LocalClusterError

STATE_NAME: Final = "cluster.json"


def read_state(folder: Path) -> dict[str, Any] | None:
    """The content of cluster.json; None: there is none.

    Raises:
        LocalClusterError: it cannot be read or is not what ``quorate up`` writes.
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
