"""The MetadataView service: a voter's metadata log, for people who reach brokers only.

Passed on as it comes: nothing is decoded here, and what a voter has to say about an offset that it
no longer keeps reaches whoever asked.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc.aio

from broker.control.ports import QuorumView
from quorate_proto.v1 import admin_pb2_grpc
from quorate_proto.v1.quorum_pb2 import WatchEvent, WatchRequest
from quorum.errors import QuorumError

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class MetadataViewService(admin_pb2_grpc.MetadataViewServicer):
    """Any broker serves it."""

    def __init__(self, quorum: QuorumView) -> None:
        self._quorum = quorum

    async def WatchMetadata(
        self, request: WatchRequest, context: Context
    ) -> AsyncIterator[WatchEvent]:
        try:
            async with aclosing(self._quorum.relay_watch(request)) as events:
                async for event in events:
                    yield event
        except QuorumError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


def add_metadata_view_to_server(server: grpc.aio.Server, quorum: QuorumView) -> None:
    admin_pb2_grpc.add_MetadataViewServicer_to_server(MetadataViewService(quorum), server)
