"""The Kafka listeners: accept connections, and stop without cutting off what is in flight."""

import asyncio
import functools
import logging
from collections import Counter
from typing import Final

from broker.allocation import give_freed_memory_back
from broker.config.listeners import CONNECTIONS_MAX_IDLE_MS, SOCKET_REQUEST_MAX_BYTES
from broker.kafka.apis import api_table
from broker.kafka.connection import KafkaConnection
from broker.kafka.connection_limits import ConnectionCounts, ConnectionLimits, SharedMemory
from broker.kafka.dispatch import Dispatcher
from broker.kafka.idle import IdleWheel
from broker.kafka.listening import Listening
from broker.kafka.services import KafkaServices
from broker.kafka.squeeze import PATIENCE_S, Squeeze
from broker.kafka.trimming import Trimming
from broker.metrics.clients import IDLE, LIMIT, MEMORY
from broker.security.door import OPEN_DOOR, Door
from broker.security.tls import ListenerTls
from metadata_log.types import Endpoint
from quorum.refusals import Refusals

_log: Final = logging.getLogger(__name__)


class KafkaServer:
    """All listeners of one broker."""

    def __init__(self, services: KafkaServices) -> None:
        self._figures = services.figures
        self._dispatcher = Dispatcher(services, api_table())
        self._limits = ConnectionLimits(frame_bytes=services.config[SOCKET_REQUEST_MAX_BYTES])
        self._memory = SharedMemory(services.memory)
        self._connections: set[KafkaConnection] = set()
        self._idle_ms = services.config[CONNECTIONS_MAX_IDLE_MS]
        self._wheel = IdleWheel(self._idle_ms, self._close_idle)
        self._squeeze = Squeeze(services.memory, self._connections, self._close_stalled)
        self._trimming = Trimming(services.memory.responses, give_freed_memory_back)
        self._by_host: Counter[str] = Counter()
        self._counts = ConnectionCounts(services.config)
        self._refusals = Refusals("Kafka listener")
        self._listening: list[Listening] = []
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self._stopping = False

    async def start(
        self, listener: Endpoint, door: Door = OPEN_DOOR, tls: ListenerTls | None = None
    ) -> Endpoint:
        """Listens at one more place; returns where, with the port that was given for port 0.

        Raises:
            OSError: the address can't be bound; says which.
        """
        listening = Listening(functools.partial(self._connection, door), tls)
        bound = await listening.start(listener)
        self._wheel.start()
        self._trimming.start()
        self._listening.append(listening)
        _log.info("Kafka listener %s (%s) on %s", door.listener, door.protocol.value, bound)
        return bound

    async def stop(self, grace_ms: int = 5_000) -> None:
        """Accepts nothing more, answers what is in flight, closes; after ``grace_ms`` it cuts."""
        if not self._listening:
            return
        self._stopping = True
        for listening in self._listening:
            listening.close()
        for connection in list(self._connections):
            connection.drain()
        try:
            await asyncio.wait_for(self._all_closed.wait(), grace_ms / 1000)
        except TimeoutError:
            _log.warning("cutting %d Kafka connections", len(self._connections))
            for connection in list(self._connections):
                connection.abort()
            await self._all_closed.wait()
        for listening in self._listening:
            await listening.wait_closed()
        self._listening.clear()
        self._wheel.stop()
        self._squeeze.stop()
        self._trimming.stop()

    def _connection(self, door: Door) -> KafkaConnection:
        return KafkaConnection(
            self._dispatcher, self._limits, self._remember, self._forget, self._memory, door
        )

    def _remember(self, connection: KafkaConnection) -> None:
        self._connections.add(connection)
        self._wheel.add(connection)
        self._figures.accepted()
        self._by_host[connection.host] += 1
        self._all_closed.clear()
        if self._stopping:
            connection.abort()
            return
        host = connection.host
        limit = self._counts.exceeded(len(self._connections), host, self._by_host[host])
        if limit is not None:
            self._refusals.refused(host, f"{limit} connections are open already")
            self._figures.closed_for(LIMIT)
            connection.abort()

    def _forget(self, connection: KafkaConnection) -> None:
        self._connections.discard(connection)
        self._wheel.discard(connection)
        self._figures.closed()
        self._by_host[connection.host] -= 1
        if not self._by_host[connection.host]:
            del self._by_host[connection.host]
        if not self._connections:
            self._all_closed.set()

    def _close_idle(self, connection: KafkaConnection) -> None:
        self._figures.closed_for(IDLE)
        reason = f"nothing has moved on it for {CONNECTIONS_MAX_IDLE_MS.name}={self._idle_ms}"
        connection.close(reason, logging.INFO)

    def _close_stalled(self, connection: KafkaConnection) -> None:
        self._figures.closed_for(MEMORY)
        connection.close(
            f"it holds {connection.request_bytes} bytes of requests and {connection.answer_bytes} "
            f"of answers while others wait for memory, and nothing has moved on it for "
            f"{PATIENCE_S:g} s: it stopped within a request, or does not read its answers"
        )
