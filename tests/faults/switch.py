"""A switch in user space between the hosts of a ``NetworkLab``: links that delay and lose frames.

Every host's ``eth0`` is a TAP device, and a process of this module forwards the frames between
them. So links can be slow or lossy where the kernel has no netem.
"""

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.network_lab import NetworkLab, address_of

_CLONE_NEWNET: Final = 0x4000_0000
_TUNSETIFF: Final = 0x4004_54CA
_TAP_WITHOUT_HEADER: Final = 0x0002 | 0x1000
_FRAME_BYTES: Final = 65_536
_MTU: Final = 16_000
_DEVICE: Final = "eth0"


class SlowLinksLab(NetworkLab):
    """A ``NetworkLab`` whose cuts, delays and losses are made by a switch in user space."""

    def _build(self) -> None:
        for host in self.hosts:
            _ip("netns", "add", self.namespace(host))
        names = [self.namespace(host) for host in self.hosts]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.switch", *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise subprocess.CalledProcessError(1, "the switch", stderr="no TAP devices here")
        for number, host in enumerate(self.hosts):
            name = self.namespace(host)
            _ip("-n", name, "link", "set", _DEVICE, "address", _hardware_address(number).hex(":"))
            _ip("-n", name, "link", "set", _DEVICE, "mtu", str(_MTU))
            _ip("-n", name, "address", "add", f"{address_of(host)}/24", "dev", _DEVICE)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", _DEVICE, "up")

    def destroy(self) -> None:
        """End the switch, and remove the namespaces."""
        self._process.kill()
        self._process.wait()
        super().destroy()

    def cut_one_way(self, sender: int, receiver: int) -> None:
        self._say("cut", self.hosts.index(sender), self.hosts.index(receiver))

    def unplug(self, host: int) -> None:
        for other in self.hosts:
            if other != host:
                self.cut(host, other)

    def slow_down(self, hosts: Sequence[int], delay_ms: int, loss: float) -> None:
        """Delay what these hosts send to each other, and lose that share of it."""
        self._say("slow", [self.hosts.index(host) for host in hosts], delay_ms, loss)

    def heal(self) -> None:
        self._say("heal")

    def _say(self, *what: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        self._process.stdout.readline()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)


def _hardware_address(number: int) -> bytes:
    return bytes([2, 0, 0, 0, 0, 1 + number])


# --- the switch -----------------------------------------------------------------------------------


class _Switch:
    """Forwards frames between TAP devices, which are known by their position."""

    def __init__(self, devices: Sequence[int]) -> None:
        self._devices = devices
        self._cuts: set[tuple[int, int]] = set()
        self._slow: frozenset[int] = frozenset()
        self._delay_s = self._loss = 0.0
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._chance = random.Random(1)

    def run(self) -> None:
        """Forward until the input ends."""
        positions = {device: number for number, device in enumerate(self._devices)}
        while True:
            timeout_s = None
            if self._waiting:
                timeout_s = max(0.0, self._waiting[0][0] - time.monotonic())
            ready, _, _ = select.select([0, *self._devices], [], [], timeout_s)
            for descriptor in ready:
                if descriptor != 0:
                    self._take(positions[descriptor], os.read(descriptor, _FRAME_BYTES))
                elif not self._obey():
                    return
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                _, _, receiver, frame = heapq.heappop(self._waiting)
                self._give(receiver, frame)

    def _take(self, sender: int, frame: bytes) -> None:
        for receiver in range(len(self._devices)):
            is_for_all = frame[0] & 1
            if receiver == sender or not (is_for_all or frame[:6] == _hardware_address(receiver)):
                continue
            if (sender, receiver) in self._cuts:
                continue
            if not {sender, receiver} <= self._slow:
                self._give(receiver, frame)
            elif self._chance.random() >= self._loss:
                self._count += 1
                at = time.monotonic() + self._delay_s
                heapq.heappush(self._waiting, (at, self._count, receiver, frame))

    def _give(self, receiver: int, frame: bytes) -> None:
        try:
            os.write(self._devices[receiver], frame)
        except OSError:  # The device is down, or its queue is full: a frame is lost.
            return

    def _obey(self) -> bool:
        line = sys.stdin.readline()
        if not line:
            return False
        what, *arguments = json.loads(line)
        if what == "cut":
            self._cuts.add((arguments[0], arguments[1]))
        elif what == "slow":
            self._slow = frozenset(arguments[0])
            self._delay_s, self._loss = arguments[1] / 1000, arguments[2]
        else:
            self._cuts.clear()
            self._slow = frozenset()
        _say("done")
        return True


def _tap(namespace: str) -> int:
    """Make the device of a host, and return its descriptor."""
    _enter(Path("/run/netns") / namespace)
    device = os.open("/dev/net/tun", os.O_RDWR)
    request = struct.pack("16sH22x", _DEVICE.encode(), _TAP_WITHOUT_HEADER)
    fcntl.ioctl(device, _TUNSETIFF, request)
    os.set_blocking(device, False)
    return device


def _enter(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {path}")
    finally:
        os.close(descriptor)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Make a device in each of the namespaces, and forward."""
    home = Path("/proc/self/ns/net")
    descriptor = os.open(home, os.O_RDONLY)
    devices = [_tap(name) for name in sys.argv[1:]]
    ctypes.CDLL(None).setns(descriptor, _CLONE_NEWNET)
    _say("ready")
    _Switch(devices).run()


if __name__ == "__main__":
    main()
