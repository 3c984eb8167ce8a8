"""``python -m tests.tables.victim POINT N ARGUMENT…``: `quorate ARGUMENT…`, killed at a point.

The process kills itself with SIGKILL at the N-th time that it comes to the point, one of `POINTS`;
with N 0, never.
"""

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from quorate.cli.main import run
from quorate.pipeline.pipeline_registry import ActiveRun
from quorate.tables.dead_letters import DeadLetters
from quorate.tables.delta_table import DeltaLakeTable
from quorate.tables.iceberg_table import IcebergTable
from quorate.tables.local_rows import LocalRows

METHODS: Final[dict[str, list[tuple[type, str]]]] = {
    "data files": [(LocalRows, "write")],
    "dead letters": [(DeadLetters, "commit")],
    "table commit": [(IcebergTable, "commit"), (DeltaLakeTable, "commit")],
    "quorum commit": [(ActiveRun, "commit")],
}
POINTS: Final = [f"{when} {what}" for what in METHODS for when in ("before", "after")]


def arm(point: str, times: int) -> None:
    """Kill this process at the given time of the point."""
    when, _, what = point.partition(" ")
    left = times

    def strike() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    for owner, name in METHODS[what]:
        setattr(owner, name, _wrapped(getattr(owner, name), when, strike))


def _wrapped(
    method: Callable[..., Any], when: str, strike: Callable[[], None]
) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapped(*args: object, **kwargs: object) -> Any:  # noqa: ANN401 - as the method
        if when == "before":
            strike()
        result = method(*args, **kwargs)
        if when == "after":
            strike()
        return result

    return wrapped


if __name__ == "__main__":
    if int(sys.argv[2]):
        arm(sys.argv[1], int(sys.argv[2]))
    sys.exit(run(sys.argv[3:]))
