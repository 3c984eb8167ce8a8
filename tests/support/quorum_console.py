"""Functions that tests call on a cluster from a host of a ``NetworkLab``, through its ``Console``.

They run in a worker process: what belongs together between calls is in ``_desk``.
"""

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from quorate.common.tls.identity import Security
from quorate.common.tls.tls_config import command_security
from quorate.quorum.client.directory import VoterDirectory
from quorate.quorum.client.quorum_client import QuorumClient
from quorate.quorum.voter_channels import stub_of
from quorate_proto.v1 import quorum_pb2 as pb
from tests.integration.quorum_writes import Writer, image_now
from tests.support.acked_load import AckedLoad, assert_nothing_lost, consume_all
from tests.support.waiting import wait_until


class Seen(NamedTuple):
    """A voter's own view."""

    leader_id: int
    term: int
    commit_offset: int
    connected: tuple[int, ...]


class Written(NamedTuple):
    """The writer's results so far."""

    acknowledged: int
    longest_gap_s: float
    sessions_lost: int


class _Desk:
    """Clients of this process, on an event loop of their own."""

    def __init__(self, security: Security | None) -> None:
        self.security = security
        self.directory: VoterDirectory | None = None
        self.client: QuorumClient | None = None
        self.writer: Writer | None = None
        self.sessions_lost = 0
        self.load: AckedLoad | None = None
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, what: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - whatever it returns
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(timeout=60)

    def lost(self) -> None:
        self.sessions_lost += 1


_desks: list[_Desk] = []


def open_desk(command_config: str, addresses: list[str]) -> None:
    """Call first: whose certificates to use, and where the voters are."""
    desk = _Desk(command_security(Path(command_config)))
    _desks.append(desk)

    async def open_directory() -> None:
        desk.directory = VoterDirectory(addresses, desk.security)

    desk.run(open_directory())


def _directory() -> VoterDirectory:
    directory = _desks[-1].directory
    assert directory is not None
    return directory


# -- single questions ----------------------------------------------------------------------------


def quorum_status(address: str) -> Seen | None:
    """None: it does not answer."""

    async def ask() -> Seen | None:
        try:
            status = await _directory().status(address)
        except grpc.aio.AioRpcError:
            return None
        others = tuple(voter.voter_id for voter in status.voters if voter.connected)
        return Seen(status.leader_id, status.term, status.commit_offset, others)

    seen: Seen | None = _desks[-1].run(ask())
    return seen


def linearizable_read(address: str, timeout_s: float) -> int | None:
    """The offset that this voter answers with; None: it does not, as it must not when cut off."""

    async def ask() -> int | None:
        stub = stub_of(_directory().channel(address))
        try:
            return (await stub.Read(pb.ReadRequest(linearizable=True), timeout=timeout_s)).offset
        except grpc.aio.AioRpcError:
            return None

    offset: int | None = _desks[-1].run(ask())
    return offset


# -- a client of the quorum that writes all the time ---------------------------------------------


def start_writer() -> None:
    desk = _desks[-1]

    async def start() -> None:
        client = QuorumClient(
            _directory().addresses,
            description="writer",
            session_timeout_ms=6_000,
            security=desk.security,
        )
        await client.start(deadline_ms=30_000)
        client.on_session_lost(desk.lost)
        desk.client, desk.writer = client, Writer(client)

    desk.run(start())


def _writer() -> Writer:
    writer = _desks[-1].writer
    assert writer is not None, "start_writer comes first"
    return writer


def reset_gap() -> None:
    async def reset() -> None:
        _writer().reset_gap()

    _desks[-1].run(reset())


def written() -> Written:
    writer = _writer()
    return Written(len(writer.acknowledged), writer.longest_gap_s, _desks[-1].sessions_lost)


def wait_for_writes(more: int, timeout_s: float = 20.0) -> None:
    """Wait until so many more are acknowledged."""
    wanted = written().acknowledged + more
    wait_until(lambda: written().acknowledged >= wanted, f"{wanted} writes", timeout_s=timeout_s)


def stop_writer() -> int:
    """Stop the writer, and return how many acknowledged writes the quorum no longer knows."""
    desk, writer = _desks[-1], _writer()
    client = desk.client
    assert client is not None

    async def stop() -> int:
        await writer.stop()
        image = await image_now(client)
        await client.close()
        return len(set(writer.acknowledged) - set(image.sessions))

    lost: int = desk.run(stop())
    desk.writer = desk.client = None
    return lost


# -- a Kafka producer ----------------------------------------------------------------------------


def start_load(bootstrap: str, topic: str, partitions: int) -> None:
    """Produce with acks=all to every partition, all the time.

    The client gives up soon on a leader that cannot commit: one that is cut off from the others,
    but not from the client, goes on trying for as long as the request allows.
    """
    settings: dict[str, str | int] = {
        "request.timeout.ms": 1_500,
        "topic.metadata.refresh.interval.ms": 500,
    }
    load = AckedLoad(bootstrap, topic, partitions, settings)
    _desks[-1].load = load
    load.start()


def wait_for_records(more: int, timeout_s: float = 30.0) -> None:
    """Wait until so many more are acknowledged in every partition."""
    load = _desks[-1].load
    assert load is not None
    load.wait_for_more(more, timeout_s=timeout_s)


def stop_load(bootstrap: str, topic: str, partitions: int) -> int:
    """Stop the load, and return how many records were acknowledged; every one of them is read
    back."""
    load = _desks[-1].load
    assert load is not None
    _desks[-1].load = None
    acknowledged = load.stop()
    assert not acknowledged.failures, acknowledged.failures[:3]
    assert_nothing_lost(acknowledged, consume_all(bootstrap, topic, partitions))
    return len(acknowledged.offsets)
