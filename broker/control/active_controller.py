"""The active controller as the other rooms of a broker use it, and the slot where they find it."""

from collections.abc import Iterable
from typing import Protocol

from quorate.broker.control.ports import ChangeExecutor
from quorate.common.metrics.family import Sample
from quorate.common.types import ControllerEpoch
from quorate_proto.v1 import admin_pb2, control_pb2


class ActiveController(ChangeExecutor, Protocol):
    """The controller of one tenure, as the services in front of it use it.

    ``broker.controller.controller`` implements it. The room of the controller lies above this one.
    """

    @property
    def controller_epoch(self) -> ControllerEpoch: ...

    def metrics(self) -> Iterable[Sample]:
        """Return how busy the controller is, and how much of their quotas clients have used
        (Q9)."""

    @property
    def alerts(self) -> list[str]:
        """Return the troubles that need an operator (C18)."""

    async def controlled_shutdown(
        self, request: control_pb2.ControlledShutdownRequest
    ) -> control_pb2.ControlledShutdownResponse: ...

    async def report_replicas(
        self, request: control_pb2.ReportReplicasRequest
    ) -> control_pb2.ReportReplicasResponse: ...

    async def report_links(
        self, request: control_pb2.ReportLinksRequest
    ) -> control_pb2.ReportLinksResponse: ...

    async def hand_over(
        self, request: admin_pb2.MoveControllerRequest
    ) -> admin_pb2.MoveControllerResponse:
        """Make another broker the active controller (E5)."""

    def observe_controller_epoch(self, controller_epoch: ControllerEpoch) -> None:
        """Record that a controller of that epoch exists. A newer epoch ends this tenure (E3)."""

    async def resign(self) -> None:
        """End the tenure; another broker becomes the active controller (E5)."""


class ActiveControllerSlot:
    """Holds the controller of this process while this broker is the active controller.

    The elector fills and empties it. Every service that needs the controller reads it.
    """

    __slots__ = ("active",)

    def __init__(self) -> None:
        self.active: ActiveController | None = None
        """The controller of this process, or None while another broker is the active controller."""

    def fill(self, controller: ActiveController) -> None:
        """Set the controller of this process, because its tenure has begun."""
        self.active = controller

    def empty(self) -> None:
        """Remove the controller, because its tenure has ended."""
        self.active = None

    def of_epoch(self, controller_epoch: int) -> ActiveController | None:
        """Return the controller of this process if the sender of a request means it (E3).

        ``controller_epoch`` is the epoch that the sender knows, or 0 if it does not say. A sender
        that means an earlier controller must look again. A later epoch ends the tenure of this
        controller.
        """
        controller = self.active
        if controller is None or controller_epoch in (0, controller.controller_epoch):
            return controller
        controller.observe_controller_epoch(ControllerEpoch(controller_epoch))
        return None
