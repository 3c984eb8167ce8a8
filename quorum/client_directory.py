"""Where the voters are, and which of them leads, as a client finds out."""

import asyncio
import logging
from collections.abc import Sequence

import grpc

from quorate_proto.v1 import quorum_pb2 as pb
from quorum.peers import open_channel, stub_of
from quorum.security import Security

log = logging.getLogger(__name__)

ASK_TIMEOUT_S = 1.0


class VoterDirectory:
    """Starts from the configured addresses; who the voters are now, it learns from any of them.

    The configured ones are asked as well, in case everybody else has moved on.
    """

    def __init__(self, addresses: Sequence[str], security: Security | None = None) -> None:
        self._security = security
        self._configured = list(dict.fromkeys(addresses))
        self.addresses = list(self._configured)
        """Of the voters, as far as known."""
        self._voter_set_version = 0
        self.leader: str | None = None
        """Address of the leader that was last seen; it may have been deposed since."""
        self.last_error = "no voter was asked yet"
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closing: list[asyncio.Future[None]] = []

    def channel(self, address: str) -> grpc.aio.Channel:
        """The one channel to that voter; it reconnects by itself."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_channel(address, self._security)
        return channel

    def in_order_of_preference(self) -> list[str]:
        """All voters, the leader first: it knows everything first."""
        others = [address for address in self.addresses if address != self.leader]
        return ([self.leader] if self.leader else []) + others

    async def find_leader(self) -> str | None:
        """Ask all voters at once; the leader that the highest term names, if it is known.

        Returns as soon as a voter says of itself that it leads.
        """
        self.leader = None
        questions = {
            asyncio.ensure_future(self._ask(address)): address
            for address in dict.fromkeys([*self.addresses, *self._configured])
        }
        best: tuple[int, str] | None = None
        try:
            for question in asyncio.as_completed(questions):
                status = await question
                if status is None or not status.leader_id:
                    continue
                self._learn(status)
                named = _grpc_address(status)
                if named is None:
                    continue
                best = max(best or (-1, ""), (status.term, named))
                if status.leader_id == status.voter_id:
                    best = (status.term, named)
                    break
        finally:
            for question in questions:
                question.cancel()
        self.leader = None if best is None else best[1]
        return self.leader

    async def status(self, address: str) -> pb.QuorumStatusResponse:
        """State of the quorum as the voter at ``address`` sees it.

        Raises:
            grpc.aio.AioRpcError: it does not answer.
        """
        stub = stub_of(self.channel(address))
        return await stub.QuorumStatus(pb.QuorumStatusRequest(), timeout=ASK_TIMEOUT_S)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        await asyncio.gather(*self._closing)

    async def _ask(self, address: str) -> pb.QuorumStatusResponse | None:
        try:
            status = await self.status(address)
        except grpc.aio.AioRpcError as error:
            self.last_error = f"{address}: {error.details() or error.code().name}"
            return None
        if not status.leader_id:
            self.last_error = f"{address}: the quorum has no leader"
        return status

    def _learn(self, status: pb.QuorumStatusResponse) -> None:
        """A newer committed voter set replaces what was known before."""
        if status.voter_set_version <= self._voter_set_version:
            return
        self._voter_set_version = status.voter_set_version
        self.addresses = [voter.grpc_address for voter in status.voters if not voter.observer]
        for address in self._channels.keys() - {*self.addresses, *self._configured}:
            channel = self._channels.pop(address)
            self._closing.append(asyncio.ensure_future(channel.close()))


def _grpc_address(status: pb.QuorumStatusResponse) -> str | None:
    for voter in status.voters:
        if voter.voter_id == status.leader_id:
            return voter.grpc_address
    return None
