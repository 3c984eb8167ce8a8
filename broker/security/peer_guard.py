"""The guard of the inter-broker listener. It admits only brokers, each under its own id.

TLS has verified that the certificate was signed by the authority. This guard checks that the
certificate belongs to a broker. If the request names its sender (F5: ``forwarded_by``, a
controller, or a follower), the guard also checks that this is the broker that sent it. After that,
the other statements of the request are trusted, such as the client on whose behalf it was sent.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import grpc

from quorate.common.grpc_support.checked_calls import CheckedCalls, Context, principal_of
from quorate.common.grpc_support.refusal_log import RefusalLog, peer_host
from quorate.common.tls.identity import Principal, Role
from quorate.common.types import BrokerId

_NODE_NAME: Final = re.compile(r"broker-(\d{1,10})\.quorate")

_SENDER: Final[Mapping[str, Callable[[Any], int] | None]] = {
    "/quorate.v1.BrokerControl/LeaderAndIsr": lambda request: request.header.controller_id,
    "/quorate.v1.BrokerControl/StopReplica": lambda request: request.header.controller_id,
    "/quorate.v1.BrokerControl/UpdateMetadata": lambda request: request.header.controller_id,
    "/quorate.v1.BrokerControl/Probe": lambda request: request.controller_id,
    "/quorate.v1.ControllerDuty/ControlledShutdown": lambda request: request.broker_id,
    "/quorate.v1.ControllerDuty/ReportReplicas": lambda request: request.broker_id,
    "/quorate.v1.ControllerDuty/ReportLinks": lambda request: request.broker_id,
    "/quorate.v1.Replication/OffsetsForLeaderEpoch": lambda request: request.replica_id,
    "/quorate.v1.Transactions/WriteMarkers": lambda request: request.broker_id,
    "/quorate.v1.Transactions/VerifyPartitions": lambda request: request.broker_id,
    "/quorate.v1.Replication/Fetch": None,  # Each frame does; the fetch session checks it.
    "/quorate.v1.Admin/ClusterStatus": None,
}
"""The field of each request that names its sender, or None if the request itself does not name it.
"""

FORWARDED: Final = "/quorate.v1.Admin/"
"""The prefix of the service whose other methods name the forwarding broker in their context."""

ALLOCATE_PRODUCER_IDS: Final = "/quorate.v1.Admin/AllocateProducerIds"


class PeerGuard(CheckedCalls):
    """Refuses callers that are not brokers, and brokers that send requests under another broker's
    id.
    """

    def __init__(self, refusals: RefusalLog) -> None:
        self._refusals = refusals

    async def check(self, method: str, request: Any, context: Context) -> None:  # noqa: ANN401 - any message
        principal = principal_of(context)
        why = refusal(principal, method, request)
        if why is None:
            return
        self._refusals.refused(f"{principal} at {peer_host(context.peer())}", why)
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{principal}: {why}")


def refusal(principal: Principal, method: str, request: Any) -> str | None:  # noqa: ANN401 - as above
    """Return why the owner of that certificate may not make that call, or None if it may."""
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
    """Return every sender that the request names. If None is among them, nobody may send the
    request.
    """
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
    """Return the broker that a certificate names, or None unless it names exactly one broker."""
    found = [int(match[1]) for name in principal.names if (match := _NODE_NAME.fullmatch(name))]
    if len(found) != 1 or not principal.is_node(Role.BROKER, found[0]):
        return None
    return BrokerId(found[0])


def peer_broker(context: Context) -> BrokerId | None:
    """Return the broker at the other end of a call. The result is None in plain text, where no
    identity is proved.
    """
    return broker_of(principal_of(context))
