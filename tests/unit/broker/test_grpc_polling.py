"""Who reads a broker's gRPC sockets."""

import os
import subprocess
import sys

import pytest

from quorate.broker.rpc.grpc_polling import read_in_the_polling_thread

SERVE = """
from quorate.broker.rpc.grpc_polling import read_in_the_polling_thread
if {chosen}:
    read_in_the_polling_thread()
import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import grpc.aio

def switches():
    tasks = Path("/proc/self/task").iterdir()
    pool = [t / "status" for t in tasks if (t / "comm").read_text().startswith("event_engine")]
    lines = [line for status in pool for line in status.read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary"))

async def echo(requests, context):
    async for request in requests:
        await context.write(request)

async def main():
    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", {{"E": handler}}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{{port}}") as channel:
        call = channel.stream_stream("/S/E")()
        for number in range(220):
            if number == 20:
                before = switches()
            await call.write(b"x")
            assert await call.read() == b"x"
        print((switches() - before) / 200)
        call.cancel()
    await server.stop(None)

asyncio.run(main())
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="threads are looked at in /proc")
def test_messages_do_not_pass_through_the_thread_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message wakes a thread of the pool by default: else this test shows nothing."""
    monkeypatch.delenv("GRPC_EXPERIMENTS", raising=False)
    woken = {
        chosen: float(
            subprocess.run(
                [sys.executable, "-c", SERVE.format(chosen=chosen)],
                check=True,
                capture_output=True,
                text=True,
                timeout=60,
            ).stdout
        )
        for chosen in (False, True)
    }
    assert woken[False] > 1
    assert woken[True] < 0.5


def test_what_the_user_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_EXPERIMENTS", "tcp_frame_size_tuning")
    read_in_the_polling_thread()
    assert os.environ["GRPC_EXPERIMENTS"] == "tcp_frame_size_tuning"
