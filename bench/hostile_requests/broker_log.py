"""Reads from a broker's log why a connection was closed, and the faults of the broker."""

import re
from pathlib import Path
from typing import Final

_CLOSED: Final = "closing the connection of "
_FAULT: Final = re.compile(r"Traceback|\bERROR\b|\bCRITICAL\b|never retrieved|Slow callback")
_TEXT_MAX: Final = 160


class BrokerLog:
    """Reads on from where it stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = path.stat().st_size
        self._lines: list[str] = []

    def skip(self) -> None:
        """Forget what was written so far."""
        self._read()
        self._lines.clear()

    def closed(self, port: int) -> str:
        """Why the connection from that port was closed; empty if the log does not say."""
        self._read()
        for line in self._lines:
            _, found, rest = line.partition(_CLOSED)
            if found and f":{port}:" in rest:
                return rest.split(": ", 1)[-1].strip()[:_TEXT_MAX]
        return ""

    def faults(self) -> tuple[str, ...]:
        """Lines that are about a fault of the broker."""
        self._read()
        return tuple(line.strip()[:_TEXT_MAX] for line in self._lines if _FAULT.search(line))

    def _read(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._at += end
        self._lines += data[:end].decode(errors="replace").splitlines()
