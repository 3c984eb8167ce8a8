"""The table service of a local cluster: one process, whose files are in ``DIR/tables``.

tables.toml     its configuration, written once and then yours
service.pid     its process
warehouse       the tables and, beside them, the catalog of the Iceberg tables
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.cluster.processes import EXIT_WITH_PARENT, is_ours, last_lines, send, wait_gone
from quorate.common.files.private_files import FILE_MODE, make_private_folder

STOP_TIMEOUT_MS: Final = 30_000
STARTED_AFTER_S: Final = 0.5
LINES_SHOWN: Final = 10


class TableProcess:
    """The process that keeps the tables of a local cluster."""

    def __init__(self, folder: Path) -> None:
        self._cluster = folder.resolve()
        self.folder = self._cluster / "tables"
        self._config = self.folder / "tables.toml"
        self._pid_file = self.folder / "service.pid"
        self._log = self._cluster / "logs" / "tables.log"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None if no service runs."""
        if self._child is not None and self._child.poll() is not None:
            return None
        try:
            pid = int(self._pid_file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return pid if is_ours(pid, self._config) else None

    def start(self, *, attached: bool) -> int:
        """Start the service unless it runs, and return its process id.

        Raises:
            LocalClusterError: it has ended at once; shows the end of its log.
        """
        if (running := self.pid) is not None:
            return running
        make_private_folder(self.folder)
        make_private_folder(self._log.parent)
        if not self._config.exists():
            warehouse = self.folder / "warehouse"
            self._config.write_text(
                f'tables.warehouse = "{warehouse}"\ntables.id = "local"\n', encoding="utf-8"
            )
        command = [sys.executable, "-P", "-m", "quorate.cli.main", "tables", "run"]
        command += ["--data", str(self._cluster), "--config", str(self._config)]
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
        with open(descriptor, "ab") as log_file:
            self._child = subprocess.Popen(
                [*command, EXIT_WITH_PARENT] if attached else command,
                stdin=subprocess.PIPE if attached else subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
            )
        self._pid_file.write_text(str(self._child.pid), encoding="ascii")
        time.sleep(STARTED_AFTER_S)
        if self._child.poll() is not None:
            shown = "\n".join(last_lines(self._log, LINES_SHOWN))
            raise LocalClusterError(f"the table service has ended at once:\n{shown}")
        return self._child.pid

    def kill(self) -> None:
        """Kill the service by kill -9, and wait until it is gone."""
        if (pid := self.pid) is not None:
            send(pid, self._config, signal.SIGKILL)
            self._wait_gone(pid)

    def stop(self) -> bool:
        """Stop the service by SIGTERM, and by SIGKILL at the timeout; return whether it ran."""
        if (pid := self.pid) is None:
            return False
        send(pid, self._config, signal.SIGTERM)
        if wait_gone([(pid, self._config)], STOP_TIMEOUT_MS):
            send(pid, self._config, signal.SIGKILL)
        self._wait_gone(pid)
        self._pid_file.unlink(missing_ok=True)
        return True

    def _wait_gone(self, pid: int) -> None:
        wait_gone([(pid, self._config)], STOP_TIMEOUT_MS)
        if self._child is not None:
            self._child.wait()
            if self._child.stdin is not None:
                self._child.stdin.close()
            self._child = None
