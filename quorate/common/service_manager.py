"""Tells systemd how a process is: the protocol of sd_notify(3), a datagram to a socket.

It does nothing where no service manager asks for it: ``NOTIFY_SOCKET`` is set by systemd for units
of ``Type=notify`` alone.
"""

import os
import socket
from typing import Final

NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"


def notify_ready(status: str) -> None:
    """Say that this process serves; ``status`` is a line for ``systemctl status``."""
    _notify(f"READY=1\nSTATUS={status}")


def notify_stopping() -> None:
    """Say that this process has begun to stop."""
    _notify("STOPPING=1")


def _notify(message: str) -> None:
    address = os.environ.get(NOTIFY_SOCKET, "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # A socket of Linux' abstract namespace.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.connect(address)
        manager.sendall(message.encode())
