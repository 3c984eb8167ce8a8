"""Finds the addresses of the voters, and the leader among them, for a client."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Final

import grpc

from quorate.common.tls.renewable import SecuritySource
from quorate.quorum.voter_channels import VoterChannels, stub_of
from quorate_proto.v1 import quorum_pb2 as pb

log = logging.getLogger(__name__)

ASK_TIMEOUT_S: Final = 1.0
STRAGGLER_S: Final = 0.2
"""For how long a voter's answer is awaited after another one has come."""


class VoterDirectory:
    """The voters as a client knows them.

    It starts from the configured addresses, and learns from any voter who the voters are now. The
    configured ones are asked as well, in case all others have moved on.
    """

    def __init__(self, addresses: Sequence[str], security: SecuritySource | None = None) -> None:
        self._is_plain = security is None
        self._configured = list(dict.fromkeys(addresses))
        self.addresses = list(self._configured)
        """The known addresses of the voters."""
        self._voter_set_version = 0
        self.leader: str | None = None
        """The address of the leader that was last seen; it may have been deposed since."""
        self._leader_term = 0
        self.last_error = "no voter was asked yet"
        self._channels = VoterChannels(security)
        self._closing: list[asyncio.Future[None]] = []

    def channel(self, address: str) -> grpc.aio.Channel:
        """Return the one channel to that voter; it reconnects by itself."""
        return self._channels.get(address)

    def in_order_of_preference(self) -> list[str]:
        """Return all voters, the leader first, because it knows everything first."""
        others = [address for address in self.addresses if address != self.leader]
        return ([self.leader] if self.leader else []) + others

    async def find_leader(self) -> str | None:
        """Ask all voters at once, and return the leader that the highest term names, if it is
        known.

        It returns as soon as a voter says of itself that it leads.
        """
        self.leader = None
        best: tuple[int, str] | None = None
        everybody = [*self.addresses, *self._configured]
        async with contextlib.aclosing(self._answers(everybody)) as answers:
            async for status in answers:
                named = _grpc_address(status)
                if named is None:
                    continue
                best = max(best or (-1, ""), (status.term, named))
                if status.leader_id == status.voter_id:
                    best = (status.term, named)
                    break
        if best is not None:
            self._leader_term, self.leader = best
        return self.leader

    async def leads_elsewhere(self, address: str) -> bool:
        """Return whether another voter than ``address`` leads, in a later term than it did."""
        others = [other for other in self.addresses if other != address]
        async with contextlib.aclosing(self._answers(others)) as answers:
            async for status in answers:
                if status.term > self._leader_term and _grpc_address(status) not in (None, address):
                    return True
        return False

    async def status(self, address: str) -> pb.QuorumStatusResponse:
        """Return the state of the quorum as the voter at ``address`` sees it.

        Raises:
            grpc.aio.AioRpcError: it does not answer.
        """
        stub = stub_of(self.channel(address))
        return await stub.QuorumStatus(pb.QuorumStatusRequest(), timeout=ASK_TIMEOUT_S)

    def note_error(self, address: str, error: grpc.aio.AioRpcError) -> None:
        """Keep for ``last_error`` what a voter answered, or why it did not."""
        self.last_error = f"{address}: {error.details() or error.code().name}"
        if self._is_plain and "Socket closed" in self.last_error:
            self.last_error += "; perhaps it speaks TLS only, and this is plain text"

    async def close(self) -> None:
        await self._channels.close()
        await asyncio.gather(*self._closing)

    async def _answers(
        self, addresses: Iterable[str]
    ) -> AsyncGenerator[pb.QuorumStatusResponse, None]:
        """Yield the answers of voters that know a leader, as they come.

        After the first answer the others get little time: the missing one may be the leader that is
        gone.
        """
        waiting = {
            asyncio.ensure_future(self._ask(address)) for address in dict.fromkeys(addresses)
        }
        within_s: float | None = None
        try:
            while waiting:
                done, waiting = await asyncio.wait(
                    waiting, timeout=within_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                for question in done:
                    status = question.result()
                    if status is not None:
                        within_s = STRAGGLER_S
                        self._learn(status)
                        yield status
        finally:
            for question in waiting:
                question.cancel()

    async def _ask(self, address: str) -> pb.QuorumStatusResponse | None:
        try:
            status = await self.status(address)
        except grpc.aio.AioRpcError as error:
            self.note_error(address, error)
            return None
        if not status.leader_id:
            self.last_error = f"{address}: the quorum has no leader"
        return status

    def _learn(self, status: pb.QuorumStatusResponse) -> None:
        """Replace the known voters by a newer committed voter set."""
        if status.voter_set_version <= self._voter_set_version:
            return
        self._voter_set_version = status.voter_set_version
        self.addresses = [voter.grpc_address for voter in status.voters if not voter.observer]
        for channel in self._channels.take_all_but({*self.addresses, *self._configured}):
            self._closing.append(asyncio.ensure_future(channel.close()))


def _grpc_address(status: pb.QuorumStatusResponse) -> str | None:
    for voter in status.voters:
        if voter.voter_id == status.leader_id:
            return voter.grpc_address
    return None
