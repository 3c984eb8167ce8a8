"""Runs what only the leader can do: here if this voter leads, else forwarded to the
leader, once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import grpc

from quorate.common.grpc_support.checked_calls import Context, principal_of
from quorate.common.tls.identity import Role, broker_of
from quorate.common.types import BrokerId
from quorate.quorum.voter.voter import NotLeader, OutcomeLost, Voter
from quorate.quorum.voter_channels import Peers

if TYPE_CHECKING:  # A name of the type stubs alone.
    from quorate_proto.v1.quorum_pb2_grpc import QuorumAsyncStub

T = TypeVar("T")

FORWARDED: Final = "x-quorate-forwarded"
FORWARDED_ONCE: Final = ((FORWARDED, "1"),)
FOR_BROKER: Final = "x-quorate-broker"
"""The broker whose call a voter passes on. It is believed of voters alone."""

WAIT_FOR_LEADER_S: Final = 5.0


class LeaderForwarder:
    """Finds the leader for one voter's service, and calls it."""

    def __init__(self, voter: Voter, peers: Peers) -> None:
        self._voter = voter
        self._peers = peers

    async def __call__(
        self,
        context: Context,
        here: Callable[[], Awaitable[T]],
        there: Callable[["QuorumAsyncStub", float], Awaitable[T]],
    ) -> T:
        """Run ``here`` if this voter leads, else ``there`` at the leader. It waits a while for a
        leader.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(
            WAIT_FOR_LEADER_S, context.time_remaining() or WAIT_FOR_LEADER_S
        )
        own_id = self._voter.config.voter_id
        forwarded = any(key == FORWARDED for key, _ in context.invocation_metadata() or ())
        while True:
            leadership = self._voter.leadership
            try:
                if leadership.leads:
                    return await here()
                if forwarded:
                    await unavailable(context, f"voter {own_id} does not lead")
                stub = self._peers.stub(leadership.leader_id)
                if stub is not None and leadership.leader_id != own_id:
                    return await there(stub, max(0.1, deadline - loop.time()))
            except NotLeader:
                pass
            except OutcomeLost:
                await unavailable(context, "the leader changed meanwhile: try again")
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    await context.abort(error.code(), error.details())
            if loop.time() >= deadline:
                await unavailable(context, "the quorum has no leader")
            await self._pause(deadline - loop.time())

    async def _pause(self, at_most_s: float) -> None:
        """Wait until something changes, but not for long: a leader elsewhere may change unseen."""
        try:
            async with asyncio.timeout(min(0.05, max(0.0, at_most_s))):
                await self._voter.changed()
        except TimeoutError:
            pass


def calling_broker(context: Context) -> BrokerId | None:
    """Return the broker that calls, by its certificate or by the word of the voter that passes its
    call on. The result is None for other callers, and in plain text.
    """
    principal = principal_of(context)
    if not principal.has_role(Role.VOTER):
        return broker_of(principal)
    for key, value in context.invocation_metadata() or ():
        if key == FOR_BROKER:
            return BrokerId(int(value))
    return None


def forwarded_for(broker_id: BrokerId | None) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call that is passed on to the leader for that broker."""
    if broker_id is None:
        return FORWARDED_ONCE
    return (*FORWARDED_ONCE, (FOR_BROKER, str(broker_id)))


async def unavailable(context: Context, why: str) -> NoReturn:
    """End the call: the caller should try again, perhaps elsewhere."""
    await context.abort(grpc.StatusCode.UNAVAILABLE, why)
    raise AssertionError("abort returned")
