"""The listener of framed streams, where followers fetch."""

import asyncio
import logging
from typing import Final

from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.services.leader_stream import LeaderStream
from quorate.broker.replication.serving.replica_fetch_session import WrongSender
from quorate.broker.rpc.listener_sockets import ListenerSockets
from quorate.broker.rpc.peer_tls import PeerTls, principal_of_certificate
from quorate.broker.security.peer_guard import NO_BROKERS_CERTIFICATE
from quorate.common.grpc_support.refusal_log import RefusalLog
from quorate.common.tls.identity import broker_of
from quorate.common.types import BrokerId, Endpoint

log = logging.getLogger(__name__)

_STRANGERS_MAX: Final = 100
"""The most connections that have not said who they are."""


class ReplicationListener:
    """Accepts followers until ``stop``."""

    def __init__(self, table: PartitionTable, tls: PeerTls | None, refusals: RefusalLog) -> None:
        """Without ``tls`` every process on this machine counts as a broker."""
        self._table = table
        self._has_tls = tls is not None
        self._refusals = refusals
        self._sockets = ListenerSockets(self._stream, tls)
        self._streams: set[LeaderStream] = set()
        self._is_stopped = False
        self.port = 0
        """The port that is bound, or 0 before ``start``."""

    async def start(self, wanted: Endpoint) -> Endpoint:
        """Listen, and return the address that is bound.

        Raises:
            OSError: the address cannot be used.
        """
        bound = await self._sockets.start(wanted)
        self.port = bound.port
        log.info("replication.port on %s", bound)
        return bound

    async def stop(self) -> None:
        """Accept nobody any more, and end all streams at once.

        A follower asks the next leader for what it has not read.
        """
        self._is_stopped = True
        self._sockets.close()
        for stream in list(self._streams):
            stream.abort()
        await self._sockets.wait_closed()

    def _stream(self) -> LeaderStream:
        return LeaderStream(self._table, self._proven, self._opened, self._streams.discard)

    def _opened(self, stream: LeaderStream) -> None:
        if self._is_stopped:  # It was accepted in the last turn of the event loop before.
            stream.abort()
        strangers = sum(not one.has_said_hello for one in self._streams)
        self._streams.add(stream)
        if strangers >= _STRANGERS_MAX:
            stream.refuse(f"{strangers} connections have not said who they are")

    def _proven(self, transport: asyncio.BaseTransport) -> BrokerId | None:
        """Return the broker whose certificate a connection has, or None without TLS.

        Raises:
            WrongSender: the certificate is no broker's.
        """
        if not self._has_tls:
            return None
        certificate = transport.get_extra_info("ssl_object").getpeercert()
        principal = principal_of_certificate(certificate)
        broker_id = broker_of(principal)
        if broker_id is None:
            self._refusals.refused(f"{principal}", NO_BROKERS_CERTIFICATE)
            raise WrongSender(f"{principal}: {NO_BROKERS_CERTIFICATE}")
        return broker_id
