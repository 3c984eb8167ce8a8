"""Connects a broker to the controller: how its changes reach the controller, and its own
candidacy."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from quorate.broker.assembly.shared_parts import SharedParts
from quorate.broker.changes.audit_log import KeepAuditEntries
from quorate.broker.control.controller_forwarder import ControllerForwarder
from quorate.broker.controller.bridge import Bridge
from quorate.broker.controller.channels.control_transport import GrpcControlTransport
from quorate.broker.controller.controller import ControllerDependencies
from quorate.broker.controller.election import ControllerElector
from quorate.broker.controller.managers.placement import draw_ids
from quorate.broker.controller.requests.administration_requests import AdministrationContext
from quorate.common.types import ID_BYTES


@dataclass(frozen=True, slots=True)
class ControllerStage:
    """The two ways of carrying out a change: the forwarder to the controller, and the bridge."""

    audit_log: KeepAuditEntries
    bridge: Bridge
    forwarder: ControllerForwarder

    @classmethod
    def open(cls, shared: SharedParts, cleanup: AsyncExitStack) -> "ControllerStage":
        """Open the audit log and prepare to forward changes."""
        environment = shared.environment
        audit_log = environment.open_audit_log(cleanup)
        bridge = Bridge(
            shared.identity,
            quorum=shared.quorum,
            images=shared.images,
            context=AdministrationContext(
                config=shared.live,
                clock_ms=environment.wall_clock_ms,
                token_keys=shared.token_keys,
                draw_id=lambda: environment.random_bytes(ID_BYTES).hex(),
            ),
            audit_log=audit_log,
        )
        bridge.start()
        cleanup.push_async_callback(bridge.close)
        forwarder = ControllerForwarder(
            identity=shared.identity,
            images=shared.images,
            channels=shared.channels,
            local=shared.active_controller,
            bridge=bridge,
        )
        return cls(audit_log, bridge, forwarder)


async def stand_for_controller(
    shared: SharedParts, controller: ControllerStage, cleanup: AsyncExitStack
) -> None:
    """Stand for controller from now on. The broker is registered."""
    elector = ControllerElector(
        shared.identity.broker_id,
        ControllerDependencies(
            config=shared.live,
            quorum=shared.quorum,
            images=shared.images,
            transport=GrpcControlTransport(shared.channels),
            draw=partial(draw_ids, shared.environment.random_bytes),
            clock_ms=shared.environment.wall_clock_ms,
            token_keys=shared.token_keys,
            audit_log=controller.audit_log,
            bridge=controller.bridge,
        ),
        slot=shared.active_controller,
    )
    await elector.start()
    cleanup.push_async_callback(elector.close)
