"""Administration of the quorum from outside: who is in it, and who leads it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import grpc

from quorate_proto.v1 import quorum_pb2 as pb
from quorum.client_directory import VoterDirectory
from quorum.config import Voter
from quorum.errors import ChangeNotMade, QuorumUnavailable
from quorum.peers import stub_of

if TYPE_CHECKING:  # A name of the type stubs alone.
    from quorate_proto.v1.quorum_pb2_grpc import QuorumAsyncStub

T = TypeVar("T")

_PAUSE_S: Final = 0.1
_CALL_TIMEOUT_S: Final = 10.0
_TRY_AGAIN: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class QuorumAdmin:
    """Asks the leader, whoever it is; each call tries until ``timeout_s`` is over.

    Every call raises ``QuorumUnavailable`` if no leader answers in time, and ``ChangeNotMade`` if
    the quorum refuses.
    """

    def __init__(self, directory: VoterDirectory, timeout_s: float) -> None:
        self._directory = directory
        self._timeout_s = timeout_s

    async def status(self) -> pb.QuorumStatusResponse:
        """The quorum as its leader sees it; as any voter does if there is no leader."""
        if await self._directory.find_leader() is None:
            for address in self._directory.addresses:
                try:
                    return await self._directory.status(address)
                except grpc.aio.AioRpcError:
                    continue

        async def ask(stub: "QuorumAsyncStub") -> pb.QuorumStatusResponse:
            return await stub.QuorumStatus(pb.QuorumStatusRequest(), timeout=_CALL_TIMEOUT_S)

        return await self._at_leader(ask)

    async def add_voter(
        self, voter: Voter, on_progress: Callable[[pb.AddVoterProgress], None]
    ) -> None:
        """Make a voter of a process that was started with an empty data folder."""
        request = pb.AddVoterRequest(
            voter_id=voter.voter_id, raft_address=str(voter.raft), grpc_address=str(voter.grpc)
        )

        async def ask(stub: "QuorumAsyncStub") -> None:
            async for progress in stub.AddVoter(request):
                on_progress(progress)

        await self._at_leader(ask)

    async def remove_voter(self, voter_id: int) -> int:
        """Take a voter out; the metadata offset of the change."""
        request = pb.RemoveVoterRequest(voter_id=voter_id)

        async def ask(stub: "QuorumAsyncStub") -> int:
            return (await stub.RemoveVoter(request, timeout=_CALL_TIMEOUT_S)).offset

        return await self._at_leader(ask)

    async def transfer_leadership(self, voter_id: int) -> int:
        """Make a voter the leader; its term."""
        request = pb.TransferLeadershipRequest(voter_id=voter_id)

        async def ask(stub: "QuorumAsyncStub") -> int:
            return (await stub.TransferLeadership(request, timeout=_CALL_TIMEOUT_S)).term

        return await self._at_leader(ask)

    async def _at_leader(self, ask: Callable[["QuorumAsyncStub"], Awaitable[T]]) -> T:
        error = ""
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    leader = await self._directory.find_leader()
                    error = error if leader else self._directory.last_error
                    if leader is not None:
                        try:
                            return await ask(stub_of(self._directory.channel(leader)))
                        except grpc.aio.AioRpcError as failure:
                            error = f"{leader}: {failure.details() or failure.code().name}"
                            if failure.code() not in _TRY_AGAIN:
                                raise ChangeNotMade(str(failure.details())) from failure
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            where = ", ".join(self._directory.addresses)
            raise QuorumUnavailable(
                f"not done within {self._timeout_s:g} s by the quorum at {where}"
                + (f" (last error: {error})" if error else "")
            ) from None
