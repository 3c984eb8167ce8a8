"""The guard of the inter-broker listener. It admits only brokers, each under its own id.

TLS has verified that the certificate was signed by the authority. This guard checks that the
certificate belongs to a broker. If the request names its sender (F5: ``forwarded_by``, a
controller, or a follower), the guard also checks that this is the broker that sent it. What the
metadata log knows is not believed of a broker either: a controller epoch that the log does not
have, or that is another broker's (E3). After that, the other statements of the request are trusted,
such as the client on whose behalf it was sent.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import grpc

from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.grpc_support.checked_calls import CheckedCalls, Context, principal_of
from quorate.common.grpc_support.refusal_log import RefusalLog, peer_host
from quorate.common.tls.identity import Principal, broker_of
from quorate.common.types import BrokerId
from quorate.metadata_log.image import Changes, Image

_SENDER: Final[Mapping[str, Callable[[Any], int] | None]] = {
    "/quorate.v1.BrokerControl/LeaderAndIsr": lambda request: request.header.controller_id,
    "/quorate.v1.BrokerControl/StopReplica": lambda request: request.header.controller_id,
    "/quorate.v1.BrokerControl/UpdateMetadata": lambda request: request.header.controller_id,
    "/quorate.v1.BrokerControl/Probe": lambda request: request.controller_id,
    "/quorate.v1.ControllerDuty/ControlledShutdown": lambda request: request.broker_id,
    "/quorate.v1.ControllerDuty/ReportReplicas": lambda request: request.broker_id,
    "/quorate.v1.ControllerDuty/ReportLinks": lambda request: request.broker_id,
    "/quorate.v1.Replication/FindStreamListener": lambda request: request.replica_id,
    "/quorate.v1.Replication/OffsetsForLeaderEpoch": lambda request: request.replica_id,
    "/quorate.v1.Transactions/WriteMarkers": lambda request: request.broker_id,
    "/quorate.v1.Transactions/VerifyPartitions": lambda request: request.broker_id,
    "/quorate.v1.SchemaRegistry/Call": lambda request: request.context.forwarded_by,
    "/quorate.v1.ConsolePeers/CarryOut": lambda request: request.broker_id,
    "/quorate.v1.ConsolePeers/ReadFigures": lambda request: request.broker_id,
    "/quorate.v1.ConsolePeers/ReadAuditLog": lambda request: request.broker_id,
    "/quorate.v1.ShareStates/Ask": lambda request: request.broker_id,
    "/quorate.v1.ShareStates/FindEnds": lambda request: request.broker_id,
    "/quorate.v1.ShareStates/WriteDeadLetters": lambda request: request.broker_id,
    "/quorate.v1.Replication/Fetch": None,  # Each frame does; the fetch session checks it.
    "/quorate.v1.Admin/ClusterStatus": None,
}
"""The field of each request that names its sender, or None if the request itself does not name it.
"""

FORWARDED: Final = "/quorate.v1.Admin/"
"""The prefix of the service whose other methods name the forwarding broker in their context."""

ALLOCATE_PRODUCER_IDS: Final = "/quorate.v1.Admin/AllocateProducerIds"

NO_BROKERS_CERTIFICATE: Final = "only brokers are served here, and this is no broker's certificate"
"""The reason of a refusal, for the log and for the peer."""

FROM_CONTROLLER: Final = "/quorate.v1.BrokerControl/"
"""The prefix of the service that only the controller calls."""

EPOCH_PATIENCE_S: Final = 2.0
"""The time that the metadata log has to show this broker a controller epoch that another broker
has seen already.
"""


class KnownController:
    """The controller as the metadata log shows it to this broker."""

    def __init__(
        self,
        images: MetadataFollower,
        is_cut_off: Callable[[], bool],
        patience_s: float = EPOCH_PATIENCE_S,
    ) -> None:
        """``is_cut_off`` tells whether this broker has lost sight of the quorum. Then it believes
        every epoch, so that it can be told to stop leading (rule 6).
        """
        self._is_cut_off = is_cut_off
        self._images = images
        self._patience_s = patience_s
        self._changed = asyncio.Event()
        images.subscribe(self._on_image, "controller")

    def _on_image(self, _image: Image, _changes: Changes) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def why_not_obey(self, method: str, request: Any) -> str | None:  # noqa: ANN401 - any message
        """Return why the controller epoch in a request is not to be believed, or None if it is.

        An epoch that the log does not have here yet is waited for. It may be news of a controller
        that was just elected.
        """
        epoch = claimed_epoch(request)
        if epoch > self._images.image.controller_epoch and not await self._has_shown(epoch):
            known = self._images.image.controller_epoch
            return f"controller epoch {epoch} is not in the metadata log, which has {known}"
        return why_not_controller(self._images.image, method, request)

    async def _has_shown(self, epoch: int) -> bool:
        """Wait a while for the metadata log to show that epoch. Return whether it does, or cannot
        show anything now.
        """
        try:
            async with asyncio.timeout(self._patience_s):
                while epoch > self._images.image.controller_epoch:
                    await self._changed.wait()
        except TimeoutError:
            return self._is_cut_off()
        return True


def claimed_epoch(request: Any) -> int:  # noqa: ANN401 - any message, or an iterator of them
    """Return the controller epoch that a request names, or 0 if it names none."""
    fields = getattr(request, "DESCRIPTOR", None)
    if fields is None:
        return 0
    for holder in ("header", "context"):
        if holder in fields.fields_by_name:
            return int(getattr(request, holder).controller_epoch)
    return int(request.controller_epoch) if "controller_epoch" in fields.fields_by_name else 0


def why_not_controller(image: Image, method: str, request: Any) -> str | None:  # noqa: ANN401 - as above
    """Return why a control request is not its sender's to send, or None if it may be.

    An epoch belongs to one broker. Older ones are not looked at here: they are refused by rule 1.
    """
    if not method.startswith(FROM_CONTROLLER) or image.controller is None:
        return None
    header = request.header if "header" in request.DESCRIPTOR.fields_by_name else request
    if header.controller_epoch != image.controller_epoch:
        return None
    if header.controller_id == image.controller.broker_id:
        return None
    return (
        f"broker {header.controller_id} is not the controller of epoch {image.controller_epoch}: "
        f"broker {image.controller.broker_id} is"
    )


class PeerGuard(CheckedCalls):
    """Refuses callers that are not brokers, and brokers that send requests under another broker's
    id or office.
    """

    def __init__(self, refusals: RefusalLog, controller: KnownController) -> None:
        self._refusals = refusals
        self._controller = controller

    async def check(self, method: str, request: Any, context: Context) -> None:  # noqa: ANN401 - any message
        principal = principal_of(context)
        why = refusal(principal, method, request)
        if why is None:
            why = await self._controller.why_not_obey(method, request)
        if why is None:
            return
        self._refusals.refused(f"{principal} at {peer_host(context.peer())}", why)
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{principal}: {why}")


def refusal(principal: Principal, method: str, request: Any) -> str | None:  # noqa: ANN401 - as above
    """Return why the owner of that certificate may not make that call, or None if it may."""
    broker_id = broker_of(principal)
    if broker_id is None:
        return NO_BROKERS_CERTIFICATE
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


def peer_broker(context: Context) -> BrokerId | None:
    """Return the broker at the other end of a call. The result is None in plain text, where no
    identity is proved.
    """
    return broker_of(principal_of(context))
