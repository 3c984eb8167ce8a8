"""What systemd is told, as sd_notify(3) has it."""

import socket
from pathlib import Path

import pytest

from quorate.common.service_manager import NOTIFY_SOCKET, notify_ready, notify_stopping


@pytest.mark.parametrize("abstract", [False, True])
def test_a_service_manager_is_told_of_readiness_and_of_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{path}" if abstract else str(path))
        monkeypatch.setenv(NOTIFY_SOCKET, f"@{path}" if abstract else str(path))
        notify_ready("broker 1 serves")
        notify_stopping()
        assert manager.recv(100) == b"READY=1\nSTATUS=broker 1 serves"
        assert manager.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("address", ["", "vsock:2:1"])
def test_without_a_service_manager_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv(NOTIFY_SOCKET, address)
    notify_ready("broker 1 serves")
