"""The one door of every change where it is carried out: who asked is asked for their rights, noted,
and audited (F5).
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from broker.control.audited_items import Item
from broker.control.changes import A, Change, Q
from broker.control.guards import guarded
from broker.controller import on_behalf
from broker.controller.implementations import Implementations
from broker.controller.on_behalf import Asked
from broker.errors import error_name
from broker.security.authorizer import Authorizer, caller_of
from metadata_log.image import Image
from metadata_log.types import ControllerEpoch
from quorate_proto.v1 import errors_pb2

AuditEntry: TypeAlias = dict[str, Any]
"""One line of the audit trail, as JSON has it."""

AuditTrail: TypeAlias = Callable[[Sequence[AuditEntry]], Awaitable[None]]
"""Keeps entries; returns once they are kept. Never raises."""


async def no_trail(_entries: Sequence[AuditEntry]) -> None:
    """For those who keep none."""


class Door:
    """Carries changes out, each with a note of who asked, and tells the audit trail.

    ``controller_epoch`` 0: of a broker that is not the controller (F6, level 1).
    """

    def __init__(
        self,
        implementations: Implementations,
        *,
        controller_epoch: ControllerEpoch,
        trail: AuditTrail,
        clock_ms: Callable[[], int],
        authorizer: Authorizer,
        image: Callable[[], Image],
    ) -> None:
        self._implementations = implementations
        self._controller_epoch = controller_epoch
        self._trail = trail
        self._clock_ms = clock_ms
        self._authorizer = authorizer
        self._image = image

    async def carry_out(self, change: Change[Q, A], request: Q) -> A:
        """What becomes of it; answered once it is audited.

        NOT_CONTROLLER is not audited: nothing was done, and the request goes elsewhere.
        """
        asked = Asked(on_behalf.note_of(request.context, change.rpc))
        rights = self._authorizer.rights_of(caller_of(request.context))
        with on_behalf.acting(asked):
            answer = await guarded(
                change, request, rights, self._image(), self._implementations.carry_out
            )
        if answer.error_code != errors_pb2.NOT_CONTROLLER:
            await self._audit(asked, _items(change, request, answer), is_trial=_is_trial(request))
        return answer

    async def _audit(self, asked: Asked, items: Iterable[Item], *, is_trial: bool) -> None:
        now = datetime.fromtimestamp(self._clock_ms() / 1000, UTC)
        common = {
            "timestamp": now.isoformat(timespec="milliseconds"),
            "principal": asked.note.principal,
            "client_host": asked.note.client_host,
            "client_id": asked.note.client_id,
            "forwarded_by": asked.note.forwarded_by,
            "api": asked.note.api,
            "validate_only": is_trial,
            "controller_epoch": self._controller_epoch,
            "metadata_offset": asked.metadata_offset,
        }
        entries = [
            {**common, "resource": one.resource, "result": error_name(one.error_code)}
            for one in items
        ]
        if entries:
            await self._trail(entries)


def _items(change: Change[Q, A], request: Q, answer: A) -> list[Item]:
    items = list(change.audited(request, answer))
    if items or answer.error_code == errors_pb2.NONE:
        return items
    failed = change.failed(request, answer.error_code, "")
    return list(change.audited(request, failed))


def _is_trial(request: object) -> bool:
    return bool(getattr(request, "validate_only", False))
