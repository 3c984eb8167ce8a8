"""The MetadataView service: the metadata log of a voter, for clients that reach only brokers.

The log is passed on unchanged, so that a voter's error about an offset that it no longer keeps
reaches the client. Or it is read as changes, for clients that cannot apply it.
"""

import difflib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc.aio

from quorate.broker.admin.metadata_history import MetadataHistory
from quorate.broker.common.errors import KafkaError
from quorate.broker.control.ports import QuorumView
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation
from quorate.common.types import MetadataOffset
from quorate.metadata_log.records import KINDS
from quorate.metadata_log.tree.history import Kinds
from quorate.quorum.quorum_errors import QuorumError
from quorate_proto.v1 import admin_pb2_grpc
from quorate_proto.v1.admin_pb2 import (
    MetadataChanges,
    MetadataChangesRequest,
    MetadataOffsetsRequest,
    MetadataOffsetsResponse,
)
from quorate_proto.v1.quorum_pb2 import WatchEvent, WatchRequest

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class MetadataViewService(admin_pb2_grpc.MetadataViewServicer):
    """Serves the metadata log, at any broker, to principals that Kafka would allow to read its own.

    They need CLUSTER_ACTION, because the log contains everything, including credentials.
    """

    def __init__(
        self, quorum: QuorumView, images: MetadataFollower, rights: Callable[[], Rights]
    ) -> None:
        """``rights`` returns the rights of the caller that is being served."""
        self._quorum = quorum
        self._history = MetadataHistory(quorum, images)
        self._rights = rights

    async def WatchMetadata(
        self, request: WatchRequest, context: Context
    ) -> AsyncIterator[WatchEvent]:
        await self._require_right(context)
        try:
            async with aclosing(self._quorum.relay_watch(request)) as events:
                async for event in events:
                    yield event
        except QuorumError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    async def MetadataOffsets(
        self, request: MetadataOffsetsRequest, context: Context
    ) -> MetadataOffsetsResponse:
        await self._require_right(context)
        await _kinds(request.record_types, context)
        try:
            return await self._history.offsets(latest_only=request.latest_only)
        except QuorumError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            raise

    async def ReadMetadataChanges(
        self, request: MetadataChangesRequest, context: Context
    ) -> AsyncIterator[MetadataChanges]:
        await self._require_right(context)
        kinds = await _kinds(request.record_types, context)
        start, end = MetadataOffset(request.start_offset), MetadataOffset(request.end_offset)
        try:
            async with aclosing(self._history.changes(start, end, kinds)) as frames:
                async for frame in frames:
                    yield frame
        except QuorumError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    async def _require_right(self, context: Context) -> None:
        try:
            self._rights().require_cluster(AclOperation.CLUSTER_ACTION)
        except KafkaError as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, error.message)


async def _kinds(names: Iterable[str], context: Context) -> Kinds:
    """Return the kinds of record by name; abort the call if there is no kind of a name."""
    kinds = frozenset(names)
    for name in sorted(kinds - KINDS):
        nearest = difflib.get_close_matches(name, sorted(KINDS), n=1, cutoff=0)[0]
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"unknown record type {name!r}: did you mean {nearest!r}? "
            f"The types are {', '.join(sorted(KINDS))}",
        )
    return kinds


def add_metadata_view_to_server(
    server: grpc.aio.Server,
    quorum: QuorumView,
    images: MetadataFollower,
    rights: Callable[[], Rights],
) -> None:
    service = MetadataViewService(quorum, images, rights)
    admin_pb2_grpc.add_MetadataViewServicer_to_server(service, server)
