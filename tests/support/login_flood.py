"""A process that logs in by PLAIN with wrong passwords, by many connections at once.

It runs until its standard input is closed: ``python -m tests.support.login_flood HOST:PORT SOURCE
COUNT``. SOURCE is the address that the connections come from. It prints a line as soon as every
connection has sent its first password.
"""

import asyncio
import contextlib
import struct
import sys
from collections.abc import Callable

from tests.support.raw_client import frame, string

_HANDSHAKE, _AUTHENTICATE = 17, 36


def handshake() -> bytes:
    return frame(struct.pack(">hhi", _HANDSHAKE, 1, 1) + string("flood") + string("PLAIN"))


def authenticate(user: str, password: str) -> bytes:
    token = f"\0{user}\0{password}".encode()
    header = struct.pack(">hhi", _AUTHENTICATE, 0, 2) + string("flood")
    return frame(header + struct.pack(">i", len(token)) + token)


async def _attempt(
    host: str, port: int, source: str, number: int, on_sent: Callable[[int], None]
) -> None:
    reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0))
    try:
        writer.write(handshake() + authenticate(f"user-{number}", "wrong"))
        on_sent(number)
        while await reader.read(1 << 12):
            pass
    finally:
        writer.close()


async def _flood(address: str, source: str, count: int) -> None:
    host, _, port = address.rpartition(":")
    silent = set(range(count))

    def sent(number: int) -> None:
        if number in silent:
            silent.remove(number)
            if not silent:
                sys.stdout.write(f"{count} connections have sent a password\n")
                sys.stdout.flush()

    async def repeat(number: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                await _attempt(host, int(port), source, number, sent)
            await asyncio.sleep(0.001)

    attempts = [asyncio.create_task(repeat(number)) for number in range(count)]
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for attempt in attempts:
        attempt.cancel()


if __name__ == "__main__":
    asyncio.run(_flood(sys.argv[1], sys.argv[2], int(sys.argv[3])))
