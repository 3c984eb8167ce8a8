"""The Kafka listener: accepts connections, and stops without cutting off what is in flight."""

import asyncio
import logging
from typing import Final

from broker.config.listeners import SOCKET_REQUEST_MAX_BYTES
from broker.kafka.apis import api_table
from broker.kafka.connection import ConnectionLimits, KafkaConnection
from broker.kafka.dispatch import Dispatcher
from broker.kafka.services import KafkaServices
from metadata_log.types import Endpoint

_log: Final = logging.getLogger(__name__)

_BACKLOG: Final = 512


class KafkaServer:
    """One listener of one broker."""

    def __init__(self, services: KafkaServices) -> None:
        self._dispatcher = Dispatcher(services, api_table())
        self._limits = ConnectionLimits(frame_bytes=services.config[SOCKET_REQUEST_MAX_BYTES])
        self._connections: set[KafkaConnection] = set()
        self._server: asyncio.Server | None = None
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self._stopping = False

    async def start(self, listener: Endpoint) -> Endpoint:
        """Listens; returns where, with the port that was given for port 0.

        Raises:
            OSError: the address can't be bound; says which.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connection, listener.host, listener.port, backlog=_BACKLOG
        )
        bound = Endpoint(listener.host, self._server.sockets[0].getsockname()[1])
        _log.info("Kafka listener on %s", bound)
        return bound

    async def stop(self, grace_ms: int = 5_000) -> None:
        """Accepts nothing more, answers what is in flight, closes; after ``grace_ms`` it cuts."""
        if self._server is None:
            return
        self._stopping = True
        self._server.close()
        for connection in list(self._connections):
            connection.drain()
        try:
            await asyncio.wait_for(self._all_closed.wait(), grace_ms / 1000)
        except TimeoutError:
            _log.warning("cutting %d Kafka connections", len(self._connections))
            for connection in list(self._connections):
                connection.abort()
            await self._all_closed.wait()
        await self._server.wait_closed()
        self._server = None

    def _connection(self) -> KafkaConnection:
        return KafkaConnection(self._dispatcher, self._limits, self._remember, self._forget)

    def _remember(self, connection: KafkaConnection) -> None:
        self._connections.add(connection)
        self._all_closed.clear()
        if self._stopping:
            connection.abort()

    def _forget(self, connection: KafkaConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()
