"""The driver's side of the probe: opens windows in broker processes, fetches what they recorded."""

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tests.structure.counting import Event, read_window
from tests.structure.probe.sitecustomize import ROOT, SOCKETS

PROBE: Final = Path(__file__).parent / "probe"
TIMEOUT_S: Final = 30.0


class Window:
    """Connected to the probe of one process."""

    def __init__(self, sockets: Path, pid: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.connect(str(sockets / str(pid)))
        self._lines = self._socket.makefile("rw", encoding="utf-8")

    def open(self) -> None:
        self._ask("open")

    def close(self) -> list[Event]:
        """Ends the recording; what happened since ``open``."""
        return read_window(self._ask("close"))

    def disconnect(self) -> None:
        self._lines.close()
        self._socket.close()

    def _ask(self, command: str) -> dict[str, Any]:
        self._lines.write(command + "\n")
        self._lines.flush()
        answer: dict[str, Any] = json.loads(self._lines.readline())
        return answer


@contextmanager
def probed_environment(root: Path) -> Iterator[Path]:
    """Brokers started inside have a probe for the product below ``root``; the folder of sockets."""
    with tempfile.TemporaryDirectory(prefix="trips-") as folder:
        paths = [str(PROBE), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {"PYTHONPATH": os.pathsep.join(paths), SOCKETS: folder, ROOT: str(root)}
        with patch.dict(os.environ, variables):
            yield Path(folder)
