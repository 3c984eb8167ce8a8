"""The probe: it records, inside a broker process, which functions of the product are entered.

Python imports this module at its start because ``tests.structure.windows`` puts its folder on
PYTHONPATH. The probe does nothing in a process that is not a broker of a measured cluster. In a
broker it listens at a unix socket named after the process: ``open`` begins a recording, ``close``
ends it and is answered with everything recorded, as one line of JSON. ``tests.structure.counting``
reads that line.

A profile function sees every call and return of every thread. Outside a recording it returns at
once, and it never records code that does not belong to the product.
"""

import json
import os
import socket
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

SOCKETS: Final = "QUORATE_TRIPS_SOCKETS"
"""Environment: the folder in which every probe opens its socket."""
ROOT: Final = "QUORATE_TRIPS_ROOT"
"""Environment: the repository whose files are recorded."""
PRODUCT: Final = ("broker", "quorum", "metadata_log", "quorate")
"""Folders of the repository that hold the product."""

Recorded = tuple[int, CodeType | None, int]
"""Thread, code that was entered (None: the frame was left), frame."""


class Probe:
    """Records calls and returns of the product's code while a recording is open."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._names: dict[str, str | None] = {}
        self._recording: list[Recorded] | None = None

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """The profile function of every thread."""
        recording = self._recording
        if recording is None or event not in ("call", "return"):
            return
        code = frame.f_code
        if self._name(code.co_filename) is not None:
            entered = code if event == "call" else None
            recording.append((threading.get_ident(), entered, id(frame)))

    def open(self) -> None:
        self._recording = []

    def close(self) -> dict[str, Any]:
        """Ends the recording; what it holds, as ``counting.read_window`` expects it."""
        recorded, self._recording = self._recording or [], None
        functions: dict[CodeType, int] = {}
        events = [
            (thread, None if code is None else functions.setdefault(code, len(functions)), frame)
            for thread, code, frame in recorded
        ]
        return {
            "threads": {one.ident: _thread_name(one) for one in threading.enumerate()},
            "functions": [(self._name(code.co_filename), code.co_qualname) for code in functions],
            "events": events,
        }

    def serve(self, listener: socket.socket) -> None:
        """Obeys one driver after the other, for as long as the process runs."""
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw", encoding="utf-8") as lines:
                for line in lines:
                    if line.strip() == "open":
                        self.open()
                        answer: object = {}
                    else:
                        answer = self.close()
                    lines.write(json.dumps(answer) + "\n")
                    lines.flush()

    def _name(self, filename: str) -> str | None:
        """The file's path in the repository; None: it does not belong to the product."""
        try:
            return self._names[filename]
        except KeyError:
            name = self._names[filename] = name_in_product(filename, self._root)
            return name


def _thread_name(thread: threading.Thread) -> str:
    """The main thread of a broker runs its event loop."""
    return "event loop" if thread is threading.main_thread() else thread.name


def name_in_product(filename: str, root: str) -> str | None:
    """The real path of a source file below ``root``; None: it does not belong to the product.

    The product's packages are reached through links, so one file may have several names.
    """
    real = os.path.realpath(filename)
    if not real.startswith(root + os.sep):
        return None
    name = os.path.relpath(real, root)
    return name if name.split(os.sep)[0] in PRODUCT else None


def _start() -> None:
    """Begins to listen if this is a broker of a measured cluster."""
    folder, root = os.environ.get(SOCKETS), os.environ.get(ROOT)
    if folder is None or root is None or not {"node", "broker"}.issubset(sys.orig_argv):
        return
    probe = Probe(Path(root))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(Path(folder) / str(os.getpid())))
    listener.listen()
    threading.Thread(target=probe.serve, args=(listener,), name="trips-probe", daemon=True).start()
    threading.setprofile(probe.profile)
    sys.setprofile(probe.profile)


_start()
