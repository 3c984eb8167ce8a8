"""A network switch in user space that delays and loses frames, for kernels without netem.

    python soft_switch.py --delay-ms 100 --loss 0.1 port1 port2 port3
    python soft_switch.py --no-offloads eth0

The first form runs in the namespace of the switch until it is ended: what a port receives goes to
the others, late, or not at all. The second form, in a host's namespace, makes the kernel finish
frames before it sends them: else their checksums are left to hardware that is not there.
"""

import argparse
import ctypes
import fcntl
import heapq
import itertools
import random
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from typing import Final

ALL_PROTOCOLS: Final = 0x0003
FRAME_MAX: Final = 65_600
BUFFER_BYTES: Final = 8 << 20
GROUP_BITS: Final = 1

_SIOCETHTOOL: Final = 0x8946
_SET_OFFLOADS: Final = (0x17, 0x1F, 0x24, 0x2C)
"""The commands of ``ethtool`` for checksums while sending, TSO, GSO and GRO."""

_SOL_PACKET, _ADD_MEMBERSHIP, _PROMISCUOUS = 263, 1, 1


def turn_off_offloads(device: str) -> None:
    """Have the kernel send whole frames, with their checksums."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for command in _SET_OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP", device.encode(), ctypes.addressof(value))
            fcntl.ioctl(asked, _SIOCETHTOOL, request)


class SoftSwitch:
    """Forwards frames between ports."""

    def __init__(
        self, ports: Sequence[str], between: Sequence[str], *, delay_s: float, loss: float
    ) -> None:
        """``between``: the ports between which frames are delayed and lost."""
        self._between = frozenset(between)
        self._delay_s = delay_s
        self._loss = loss
        self._sockets = {port: _opened(port) for port in ports}
        self._known: dict[bytes, str] = {}
        self._late: list[tuple[float, int, str, bytes]] = []
        self._numbers = itertools.count()
        self._random = random.Random()

    def run(self) -> None:
        """Forward until the process is ended."""
        selector = selectors.DefaultSelector()
        for port, opened in self._sockets.items():
            selector.register(opened, selectors.EVENT_READ, port)
        while True:
            wait_s = max(0.0, self._late[0][0] - time.monotonic()) if self._late else None
            for key, _ in selector.select(wait_s):
                self._receive(key.data)
            self._send_what_is_due()

    def _receive(self, port: str) -> None:
        opened = self._sockets[port]
        for _ in range(64):
            try:
                frame, (_, _, kind, _, _) = opened.recvfrom(FRAME_MAX)
            except BlockingIOError:
                return
            if kind == socket.PACKET_OUTGOING:
                continue
            self._known[frame[6:12]] = port
            target = None if frame[0] & GROUP_BITS else self._known.get(frame[:6])
            for other in [target] if target else [one for one in self._sockets if one != port]:
                self._pass_on(port, other, frame)

    def _pass_on(self, port: str, other: str, frame: bytes) -> None:
        if port not in self._between or other not in self._between:
            self._send(other, frame)
        elif self._random.random() >= self._loss:
            due_s = time.monotonic() + self._delay_s
            heapq.heappush(self._late, (due_s, next(self._numbers), other, frame))

    def _send_what_is_due(self) -> None:
        now_s = time.monotonic()
        while self._late and self._late[0][0] <= now_s:
            _, _, port, frame = heapq.heappop(self._late)
            self._send(port, frame)

    def _send(self, port: str, frame: bytes) -> None:
        try:
            self._sockets[port].send(frame)
        except OSError:
            return  # A full queue or a port that is down loses frames, as a switch does.


def _opened(port: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    opened.bind((port, 0))
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    index = socket.if_nametoindex(port)
    everything = struct.pack("IHH8s", index, _PROMISCUOUS, 0, b"")
    opened.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, everything)
    opened.setblocking(False)
    return opened


def main() -> None:
    parser = argparse.ArgumentParser(description="Delay and lose frames between ports.")
    parser.add_argument("devices", nargs="+")
    parser.add_argument("--no-offloads", action="store_true")
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--between", nargs="+", default=[])
    flags = parser.parse_args()
    if flags.no_offloads:
        for device in flags.devices:
            turn_off_offloads(device)
        return
    between = flags.between or flags.devices
    SoftSwitch(flags.devices, between, delay_s=flags.delay_ms / 1000, loss=flags.loss).run()


if __name__ == "__main__":
    main()
