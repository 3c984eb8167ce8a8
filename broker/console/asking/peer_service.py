"""Serves the consoles of other brokers: what this broker has, for the person who asks there.

The sending broker has authenticated the person, as it does for forwarded changes (F5). The rights
are decided here.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import grpc.aio

from quorate.broker.console.asking.kafka_messages import is_carried_for_others
from quorate.broker.console.asking.local_requests import AskFailed, LocalRequests
from quorate.broker.console.asking.own_reads import OwnReads
from quorate.broker.console.asking.person import decode_person
from quorate_proto.v1 import console_pb2, console_pb2_grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class PeerService(console_pb2_grpc.ConsolePeersServicer):
    """The gRPC service for other brokers. It is there with and without a console of its own."""

    def __init__(self, local: LocalRequests, reads: OwnReads) -> None:
        self._local = local
        self._reads = reads

    async def CarryOut(
        self, request: console_pb2.CarryOutRequest, context: Context
    ) -> console_pb2.CarryOutResponse:
        if not is_carried_for_others(request.frame):
            return console_pb2.CarryOutResponse(refusal="not carried out for another console")
        try:
            body = await self._local.carry_out(decode_person(request.person), request.frame)
        except AskFailed as error:
            return console_pb2.CarryOutResponse(refusal=str(error))
        return console_pb2.CarryOutResponse(body=body)

    async def ReadFigures(
        self, request: console_pb2.FiguresRequest, context: Context
    ) -> console_pb2.FiguresResponse:
        person = decode_person(request.person)
        return self._reads.figures(person, request.names, request.largest)

    async def ReadAuditLog(
        self, request: console_pb2.AuditLogRequest, context: Context
    ) -> console_pb2.AuditLogResponse:
        try:
            lines: Sequence[str] = await self._reads.audit_log(
                decode_person(request.person), request.lines_max
            )
        except AskFailed as error:
            return console_pb2.AuditLogResponse(refusal=str(error))
        return console_pb2.AuditLogResponse(lines=lines)
