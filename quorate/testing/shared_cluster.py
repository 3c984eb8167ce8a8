"""One cluster for all tests of a run, also if pytest-xdist has several workers.

The first worker that needs it starts it, and the others find it by a file beside their temporary
folders. The worker that started it waits at its end until no other uses it, because its processes
end with it.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from quorate.cluster.local import LocalCluster
from quorate.testing.fast_settings import FAST_SETTINGS
from quorate.testing.running import RunningCluster, running_cluster

STATE_NAME: Final = "quorate-cluster.json"
LOCK_NAME: Final = "quorate-cluster.lock"
POLL_INTERVAL_S: Final = 0.05

State = dict[str, Any]
"""The folder of the cluster, and the process ids of those that use it; empty if there is none."""


@contextmanager
def shared_cluster(folder: Path) -> Iterator[RunningCluster]:
    """Give out the one cluster of all processes that name the same ``folder``."""
    with ExitStack() as owned:
        with _locked(folder):
            cluster = _joined(folder)
            if cluster is None:
                cluster = owned.enter_context(running_cluster(config=FAST_SETTINGS))
                _write(folder, {"folder": str(cluster.folder), "users": [os.getpid()]})
                owned.callback(_wait_for_others, folder)
        try:
            yield cluster
        finally:
            with _locked(folder):
                _leave(folder)


def _joined(folder: Path) -> RunningCluster | None:
    """Return the cluster that another process has started, if it runs, and count as its user."""
    state = _read(folder)
    if not state:
        return None
    found = LocalCluster.find(Path(state["folder"]), lambda message: None, attached=True)
    if found is None or not found.running():
        return None
    _write(folder, {**state, "users": [*state["users"], os.getpid()]})
    return RunningCluster(found)


def _leave(folder: Path) -> None:
    state = _read(folder)
    if state:
        _write(folder, {**state, "users": [one for one in state["users"] if one != os.getpid()]})


def _wait_for_others(folder: Path) -> None:
    """Return once nobody uses the cluster any more; from then on nobody finds it."""
    while True:
        with _locked(folder):
            users = _read(folder).get("users", ())
            if not any(map(_lives, users)):
                (folder / STATE_NAME).unlink(missing_ok=True)
                return
        time.sleep(POLL_INTERVAL_S)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _read(folder: Path) -> State:
    try:
        found: State = json.loads((folder / STATE_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def _write(folder: Path, state: State) -> None:
    (folder / STATE_NAME).write_text(json.dumps(state), encoding="utf-8")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time look at the cluster, start it or leave it."""
    with (folder / LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
