"""A stopping broker asks the controller to move its leaderships first (scenario 11)."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.control.controller_duty import ControllerDuty
from broker.control.ports import ActiveController, CurrentController, Images
from broker.errors import error_name
from broker.peers import PeerChannels
from metadata_log.types import BrokerEpoch, BrokerId
from quorate_proto.v1 import control_pb2, errors_pb2

if TYPE_CHECKING:
    from quorate_proto.v1.control_pb2_grpc import ControllerDutyAsyncStub

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 100


async def request_controlled_shutdown(
    *,
    broker_id: BrokerId,
    broker_epoch: Callable[[], BrokerEpoch | None],
    images: Images,
    channels: PeerChannels,
    local: CurrentController,
    timeout_ms: int,
) -> None:
    """Ask until nothing is left that could move, or ``timeout_ms`` is up. Never raises.

    Returns at once where there is nobody to move to. Stopping without it is safe, only slower for
    clients: the controller then learns of it from the end of the session.
    """
    duty = ControllerDuty(broker_id, images=images, channels=channels, local=local)
    deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
    while (left_s := deadline_s - asyncio.get_running_loop().time()) > 0:
        epoch = broker_epoch()
        if epoch is None or set(images.image.brokers) <= {broker_id}:
            return
        request = control_pb2.ControlledShutdownRequest(
            broker_id=broker_id,
            broker_epoch=epoch,
            controller_epoch=images.image.controller_epoch,
        )
        answer = await duty.ask(
            partial(_here, request), partial(_there, request, timeout_s=left_s), left_s
        )
        if answer is not None and answer.error_code == errors_pb2.NONE:
            if answer.remaining_partitions == 0:
                log.info("broker %d leads nothing any more and stops", broker_id)
                return
            log.info("broker %d still leads %d", broker_id, answer.remaining_partitions)
        elif answer is not None:
            log.info("controlled shutdown: %s", error_name(answer.error_code))
        await asyncio.sleep(RETRY_INTERVAL_MS / 1000)
    log.warning("broker %d stops without having handed over all it leads", broker_id)


async def _here(
    request: control_pb2.ControlledShutdownRequest, controller: ActiveController
) -> control_pb2.ControlledShutdownResponse:
    return await controller.controlled_shutdown(request)


async def _there(
    request: control_pb2.ControlledShutdownRequest,
    stub: "ControllerDutyAsyncStub",
    *,
    timeout_s: float,
) -> control_pb2.ControlledShutdownResponse:
    return await stub.ControlledShutdown(request, timeout=timeout_s)
