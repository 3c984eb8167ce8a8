"""Who may call what at the listener of brokers: brokers, each as itself.

TLS has shown before that the certificate is the authority's. Here: that it is a broker's, and that
a request which names its sender (F5: ``forwarded_by``; a controller; a follower) names the very
broker that sent it. Then what it says of others, such as on whose behalf it asks, is believed.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import grpc

from metadata_log.types import BrokerId
from quorum.authorization import principal_of
from quorum.checked_calls import CheckedCalls, Context
from quorum.refusals import Refusals, peer_host
from quorum.security import Principal, Role

_NODE_NAME: Final = re.compile(r"broker-(\d{1,10})\.quorate")

_SENDER: Final[Mapping[str, Callable[[Any], int] | None]] = {
    "/quorate.v1.BrokerControl/LeaderAndIsr": lambda request: request.header.controller_id,
    "/quorate.v1.BrokerControl/StopReplica": lambda request: request.header.controller_id,
    "/quorate.v1.BrokerControl/UpdateMetadata": lambda request: request.header.controller_id,
    "/quorate.v1.ControllerDuty/ControlledShutdown": lambda request: request.broker_id,
    "/quorate.v1.ControllerDuty/ReportReplicas": lambda request: request.broker_id,
    "/quorate.v1.Replication/OffsetsForLeaderEpoch": lambda request: request.replica_id,
    "/quorate.v1.Transactions/WriteMarkers": lambda request: request.broker_id,
    "/quorate.v1.Transactions/VerifyPartitions": lambda request: request.broker_id,
    "/quorate.v1.Replication/Fetch": None,  # In each frame: the fetch session compares it.
    "/quorate.v1.Admin/ClusterStatus": None,
}
"""Whom a request names as its sender; None: it names nobody here."""

FORWARDED: Final = "/quorate.v1.Admin/"
"""All other methods of this service say in their context who forwards."""

ALLOCATE_PRODUCER_IDS: Final = "/quorate.v1.Admin/AllocateProducerIds"


class PeerGuard(CheckedCalls):
    """Refuses everybody but brokers, and brokers that speak for others."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    async def check(self, method: str, request: Any, context: Context) -> None:  # noqa: ANN401 - any message
        principal = principal_of(context)
        why = refusal(principal, method, request)
        if why is None:
            return
        self._refusals.refused(f"{principal} at {peer_host(context.peer())}", why)
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{principal}: {why}")


def refusal(principal: Principal, method: str, request: Any) -> str | None:  # noqa: ANN401 - as above
    """Why the holder of that certificate may not make that call; None: it may."""
    broker_id = broker_of(principal)
    if broker_id is None:
        return "only brokers are served here, and this is no broker's certificate"
    name = method.rpartition("/")[2]
    for claimed in _senders(method, request):
        if claimed is None:
            return f"{name} is not served here"
        if claimed != broker_id:
            return f"{name} of broker {claimed} is not broker {broker_id}'s to send"
    return None


def _senders(method: str, request: Any) -> list[int | None]:  # noqa: ANN401 - as above
    """Every sender that the request names; None among them: nobody may send it."""
    if method in _SENDER:
        sender = _SENDER[method]
        return [] if sender is None else [sender(request)]
    if not method.startswith(FORWARDED) or "context" not in request.DESCRIPTOR.fields_by_name:
        return [None]
    forwarded_by = int(request.context.forwarded_by)
    if method == ALLOCATE_PRODUCER_IDS:
        return [forwarded_by, int(request.broker_id)]
    return [forwarded_by]


@lru_cache(maxsize=1024)
def broker_of(principal: Principal) -> BrokerId | None:
    """The broker that a certificate names; None: none, or more than one."""
    found = [int(match[1]) for name in principal.names if (match := _NODE_NAME.fullmatch(name))]
    if len(found) != 1 or not principal.is_node(Role.BROKER, found[0]):
        return None
    return BrokerId(found[0])


def peer_broker(context: Context) -> BrokerId | None:
    """The broker at the other end of a call; None: in plain text nobody shows who they are."""
    return broker_of(principal_of(context))
