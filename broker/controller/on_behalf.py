"""On whose behalf the controller is writing: each request's note travels with its writes.

A request's work runs in the controller's event queue, piece by piece. The note is carried there as
a context variable, so that no write of a request can lack it, and none of the controller's own can
have one: a piece's scope ends with the piece, whatever tasks and timers it started.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from metadata_log.features import metadata_version
from metadata_log.image import Image
from metadata_log.records import ChangeNote, Operation
from metadata_log.types import BrokerId, MetadataOffset
from quorate_proto.v1 import admin_pb2

TEXT_MAX: Final = 256
"""Characters of what a client says of itself that are kept."""

FIRST_VERSION_WITH_NOTES: Final = 3
"""Of metadata_version."""


class Asked:
    """One request at the controller. ``metadata_offset``: of its newest write, 0 before any."""

    def __init__(self, note: ChangeNote) -> None:
        self.note = note
        self.metadata_offset = MetadataOffset(0)

    def written(self, offset: MetadataOffset) -> None:
        self.metadata_offset = max(self.metadata_offset, offset)


class _Scope:
    def __init__(self, asked: Asked) -> None:
        self.asked: Asked | None = asked


_SCOPE: ContextVar[_Scope | None] = ContextVar("on_behalf", default=None)


def current() -> Asked | None:
    """The request that is being carried out; None: the controller acts by itself."""
    scope = _SCOPE.get()
    return None if scope is None else scope.asked


@contextmanager
def acting(asked: Asked | None) -> Iterator[None]:
    """What is written inside is written for ``asked``."""
    scope = None if asked is None else _Scope(asked)
    token = _SCOPE.set(scope)
    try:
        yield
    finally:
        _SCOPE.reset(token)
        if scope is not None:
            scope.asked = None


def note_of(context: admin_pb2.RequestContext, rpc: str) -> ChangeNote:
    """What the metadata log keeps of who asked: no more than names."""
    return ChangeNote(
        principal=context.principal_name[:TEXT_MAX],
        client_host=context.client_host[:TEXT_MAX],
        client_id=context.client_id[:TEXT_MAX],
        api=(context.api_name or rpc)[:TEXT_MAX],
        forwarded_by=BrokerId(context.forwarded_by),
    )


def noted(image: Image, operation: Operation, asked: Asked | None) -> Operation:
    """``operation`` with the note of the request it is written for ahead of its records.

    Before metadata_version 3 the log cannot hold notes, and the operation stays as it is.
    """
    if asked is None or metadata_version(image) < FIRST_VERSION_WITH_NOTES:
        return operation
    return Operation(records=(asked.note, *operation.records), conditions=operation.conditions)
