"""The Kafka listeners. They accept connections, and stop without cutting off requests in flight."""

import asyncio
import functools
import logging
from collections import Counter
from typing import Final

from quorate.broker.config.listeners import CONNECTIONS_MAX_IDLE_MS, SOCKET_REQUEST_MAX_BYTES
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.connection import KafkaConnection
from quorate.broker.kafka.connection.connection_limits import (
    ConnectionCounts,
    ConnectionLimits,
    SharedMemory,
)
from quorate.broker.kafka.connection.idle_connections import IdleExpiryManager
from quorate.broker.kafka.connection.memory_pressure import (
    MemoryTrimmer,
    StalledConnectionCloser,
)
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.metrics.client_metrics import LIMIT
from quorate.broker.rpc.listener_sockets import ListenerSockets
from quorate.broker.security.listener_security import OPEN_LISTENER, ListenerSecurity
from quorate.broker.security.listener_tls import ListenerTls
from quorate.common.allocation import return_freed_memory
from quorate.common.grpc_support.refusal_log import RefusalLog
from quorate.common.types import Endpoint

_log: Final = logging.getLogger(__name__)


class KafkaServer:
    """All Kafka listeners of one broker."""

    def __init__(self, services: KafkaServices) -> None:
        self._figures = services.figures
        self._dispatcher = RequestDispatcher(services, api_table())
        self._limits = ConnectionLimits(frame_bytes=services.config[SOCKET_REQUEST_MAX_BYTES])
        self._memory = SharedMemory(services.memory)
        self._connections: set[KafkaConnection] = set()
        self._idle = IdleExpiryManager(services.config[CONNECTIONS_MAX_IDLE_MS], self._figures)
        self._stalled = StalledConnectionCloser(services.memory, self._connections, self._figures)
        self._trimmer = MemoryTrimmer(services.memory.responses, return_freed_memory)
        self._by_host: Counter[str] = Counter()
        self._counts = ConnectionCounts(services.config)
        self._rates = services.connection_rates
        self._refusals = RefusalLog("Kafka listener")
        self._sockets: list[ListenerSockets] = []
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self._stopping = False

    async def start(
        self,
        listener: Endpoint,
        security: ListenerSecurity = OPEN_LISTENER,
        tls: ListenerTls | None = None,
    ) -> Endpoint:
        """Listen at one more address. Return it, with the port that was chosen if the port is 0.

        Raises:
            OSError: the address cannot be bound. The message says which one.
        """
        if security.sasl is not None:
            self._figures.logins.append(security.sasl.logins)
        sockets = ListenerSockets(functools.partial(self._connection, security), tls)
        bound = await sockets.start(listener)
        self._idle.start()
        self._trimmer.start()
        self._sockets.append(sockets)
        _log.info("Kafka listener %s (%s) on %s", security.listener, security.protocol.value, bound)
        return bound

    async def stop(self, grace_ms: int = 5_000) -> None:
        """Accept nothing more, respond to the requests in flight, and close.

        Connections that still exist after ``grace_ms`` are cut.
        """
        if not self._sockets:
            return
        self._stopping = True
        for sockets in self._sockets:
            sockets.close()
        for connection in list(self._connections):
            connection.drain()
        try:
            await asyncio.wait_for(self._all_closed.wait(), grace_ms / 1000)
        except TimeoutError:
            _log.warning("cutting %d Kafka connections", len(self._connections))
            for connection in list(self._connections):
                connection.abort()
            await self._all_closed.wait()
        for sockets in self._sockets:
            await sockets.wait_closed()
        self._sockets.clear()
        self._idle.stop()
        self._stalled.stop()
        self._trimmer.stop()

    def _connection(self, security: ListenerSecurity) -> KafkaConnection:
        return KafkaConnection(
            self._dispatcher, self._limits, self._remember, self._forget, self._memory, security
        )

    def _remember(self, connection: KafkaConnection) -> None:
        self._connections.add(connection)
        self._idle.add(connection)
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
            return
        self._delay(connection)

    def _delay(self, connection: KafkaConnection) -> None:
        """Let a connection wait that was opened too soon after others (KIP-612)."""
        delay = self._rates.admit(connection.host)
        if delay.is_refused:
            self._refusals.refused(connection.host, f"connections come too fast: {delay.limit}")
            self._figures.closed_for(LIMIT)
            connection.abort()
        elif delay.delay_ms:
            self._rates.waiting += 1
            loop = asyncio.get_running_loop()
            loop.call_later(delay.delay_ms / 1_000, self._begin_delayed)
            connection.delay(delay.delay_ms)

    def _begin_delayed(self) -> None:
        self._rates.waiting -= 1

    def _forget(self, connection: KafkaConnection) -> None:
        self._connections.discard(connection)
        self._idle.discard(connection)
        self._figures.closed()
        self._by_host[connection.host] -= 1
        if not self._by_host[connection.host]:
            del self._by_host[connection.host]
        if not self._connections:
            self._all_closed.set()
