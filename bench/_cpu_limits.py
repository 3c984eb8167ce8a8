"""Limits processes to a share of a core each, so that few cores stand for many slow ones.

A machine of two cores cannot saturate two brokers and have a client besides. With brokers that may
use a part of a core each, it can: what a broker does with its share grows with the share, and the
client has the rest. The kernel's control groups do it, where this process may make one.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PERIOD_US: Final = 10_000
"""Short, so that a process which has used its share waits less than a request takes."""
_VERSION_1: Final = Path("/sys/fs/cgroup/cpu")
_VERSION_2: Final = Path("/sys/fs/cgroup")


def can_limit() -> bool:
    """Return whether this process may limit others."""
    try:
        _group("probe", 1.0).rmdir()
    except OSError:
        return False
    return True


@contextmanager
def limited(pids: Iterable[int], share: float) -> Iterator[None]:
    """Limit each process, with all its threads, to ``share`` of one core's time.

    Raises:
        OSError: this system, or this user's rights, do not allow it.
    """
    groups: list[Path] = []
    try:
        for pid in pids:
            groups.append(_group(str(pid), share))
            (groups[-1] / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for group in groups:
            for left in (group / "cgroup.procs").read_text().split():
                with suppress(OSError):  # The process has just ended.
                    (_parent() / "cgroup.procs").write_text(left)
            group.rmdir()


def _group(name: str, share: float) -> Path:
    """Make a control group whose processes may use ``share`` of a core."""
    group = _parent() / f"quorate-bench-{os.getpid()}-{name}"
    group.mkdir()
    _set_share(group, share)
    return group


def _parent() -> Path:
    return _VERSION_1 if (_VERSION_1 / "cgroup.procs").exists() else _VERSION_2


def _set_share(group: Path, share: float) -> None:
    quota = int(share * _PERIOD_US)
    if _parent() == _VERSION_1:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
    else:
        (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
