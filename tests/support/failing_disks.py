"""Disks that are full or fail while processes write to them, though the machine's own is well."""

import resource
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.power_loss.events import compiler

FULL_BYTES: Final = 128 << 10
"""No file of a broker grows beyond this on a full disk. That is more than a broker has said by
then, and less than any load makes of its log in seconds."""
_SOURCE: Final = Path(__file__).with_name("failing_disk.c")


def fill_disk(pid: int) -> None:
    """Make writes of this process beyond a size fail from now on, as those to a full disk do."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (FULL_BYTES, resource.RLIM_INFINITY))


def free_disk(pid: int) -> None:
    """Make room again."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class FailingDisks:
    """The disks of the brokers below ``folder``: writes and syncs end with EIO while one fails.

    Host N keeps its files where ``ThreeHosts`` has them. Only a process that was started with the
    ``environment`` of its host is concerned.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._library: Path | None = None
        if (found := compiler()) is not None:
            self._library = folder / "failing_disk.so"
            made = [found, "-O1", "-shared", "-fPIC", "-o", str(self._library)]
            subprocess.run([*made, str(_SOURCE), "-ldl"], check=True)

    @property
    def can_fail(self) -> bool:
        """Whether there is a compiler, which makes the library that is preloaded."""
        return self._library is not None

    def environment(self, host: int) -> Mapping[str, str]:
        """Return what a process on the host needs in its environment."""
        if self._library is None:
            return {}
        return {
            "LD_PRELOAD": str(self._library),
            "FAIL_FLAG": str(self._flag(host)),
            "FAIL_ROOT": f"{self._folder}/host-{host}/var/lib/quorate/broker-",
        }

    def fail(self, host: int) -> None:
        self._flag(host).touch()

    def heal(self, host: int) -> None:
        self._flag(host).unlink(missing_ok=True)

    def _flag(self, host: int) -> Path:
        """Return the file that makes the host's disk fail."""
        return self._folder / f"disk-{host}-fails"
