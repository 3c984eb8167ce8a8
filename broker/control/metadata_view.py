"""The MetadataView service: a voter's metadata log, for people who reach brokers only.

Passed on as it comes: nothing is decoded here, and what a voter has to say about an offset that it
no longer keeps reaches whoever asked.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc.aio

from broker.control.ports import QuorumView
from broker.errors import KafkaError
from broker.security.authorizer import Rights
from metadata_log.acls import AclOperation
from quorate_proto.v1 import admin_pb2_grpc
from quorate_proto.v1.quorum_pb2 import WatchEvent, WatchRequest
from quorum.errors import QuorumError

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class MetadataViewService(admin_pb2_grpc.MetadataViewServicer):
    """Any broker serves it, to those to whom Kafka would show its metadata log.

    That is CLUSTER_ACTION: everything is in it, credentials too.
    """

    def __init__(self, quorum: QuorumView, rights: Callable[[], Rights]) -> None:
        """``rights``: of who makes the call that is being served."""
        self._quorum = quorum
        self._rights = rights

    async def WatchMetadata(
        self, request: WatchRequest, context: Context
    ) -> AsyncIterator[WatchEvent]:
        try:
            self._rights().require_cluster(AclOperation.CLUSTER_ACTION)
        except KafkaError as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, error.message)
        try:
            async with aclosing(self._quorum.relay_watch(request)) as events:
                async for event in events:
                    yield event
        except QuorumError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


def add_metadata_view_to_server(
    server: grpc.aio.Server, quorum: QuorumView, rights: Callable[[], Rights]
) -> None:
    service = MetadataViewService(quorum, rights)
    admin_pb2_grpc.add_MetadataViewServicer_to_server(service, server)
