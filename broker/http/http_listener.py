"""An HTTP listener: authenticates the client of each request, has its route handle it, and writes
the audit log."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from quorate.broker.changes.audit_log import KeepAuditEntries
from quorate.broker.config.http_listeners import HTTP_MAX_CONNECTIONS, HttpAddress
from quorate.broker.http.http_authentication import HttpAuthentication
from quorate.broker.http.http_bodies import BODY_BYTES_MAX
from quorate.broker.http.http_connection import ConnectionRegister, HttpConnection
from quorate.broker.http.http_routes import (
    AUDITED_RESOURCE,
    HttpRefusal,
    HttpRoute,
    ShowRefusal,
    refusal_as_json,
)
from quorate.broker.kafka.connection.connection_limits import ConnectionCounts
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.rpc.listener_sockets import ListenerSockets
from quorate.broker.security.client_guard import Unauthenticated
from quorate.broker.security.listener_tls import ListenerTls
from quorate.broker.security.login_queue import TooManyLogins
from quorate.common.configuration import Values
from quorate.common.grpc_support.refusal_log import RefusalLog
from quorate.common.types import Endpoint

_log: Final = logging.getLogger(__name__)

IDLE_TIMEOUT_S: Final = 30.0
"""How long a connection may be without a request that has come with its whole head."""
STOP_GRACE_S: Final = 2.0
"""The time that requests in flight have to end once the listener closes."""

_FORBIDDEN: Final = 403
_NOT_FORWARDED: Final = -1


class HttpListener:
    """One listener with its routes. ``start`` it, and ``stop`` it once."""

    def __init__(
        self,
        name: str,
        routes: Sequence[HttpRoute],
        authentication: HttpAuthentication,
        audit_log: KeepAuditEntries,
        config: Values,
        *,
        show: ShowRefusal = refusal_as_json,
    ) -> None:
        """``name`` is the listener's name in contexts, logs and messages, such as REGISTRY."""
        self.name = name
        self._authentication = authentication
        self._audit_log = audit_log
        self._show = show
        self._refusals = RefusalLog(f"HTTP listener {name}")
        counts = ConnectionCounts(config, HTTP_MAX_CONNECTIONS)
        self._register = ConnectionRegister(counts, self._refusals)
        self._application = web.Application(
            middlewares=[_errors_as(show)], client_max_size=BODY_BYTES_MAX
        )
        for route in routes:
            serve = partial(self._serve, route)
            self._application.router.add_route(route.method, route.path, serve)
        self._runner = web.AppRunner(
            self._application,
            access_log=None,
            keepalive_timeout=IDLE_TIMEOUT_S,
            shutdown_timeout=STOP_GRACE_S,
        )
        self._sockets: ListenerSockets | None = None

    async def start(self, address: HttpAddress, tls: ListenerTls | None) -> Endpoint:
        """Listen. Return the address, with the port that was chosen if the port is 0.

        Raises:
            OSError: the address cannot be bound.
        """
        await self._runner.setup()
        self._sockets = ListenerSockets(self._connection, tls)
        bound = await self._sockets.start(address.endpoint)
        _log.info("HTTP listener %s on %s", self.name, address.url(bound))
        return bound

    async def stop(self) -> None:
        """Accept nothing more, let requests in flight end for a while, and close."""
        if self._sockets is not None:
            self._sockets.close()
        await self._runner.cleanup()
        if self._sockets is not None:
            await self._sockets.wait_closed()

    def _connection(self) -> HttpConnection:
        server = self._runner.server
        assert server is not None, "the runner is set up before the sockets are"
        return HttpConnection(self._register, server())

    async def _serve(self, route: HttpRoute, request: web.Request) -> web.StreamResponse:
        host = request.remote or ""
        try:
            principal = await self._authentication.principal_of(request, host)
        except Unauthenticated as error:
            return self._unauthenticated(host, error)
        except TooManyLogins as error:
            self._refusals.refused(host, str(error))
            return self._show(HttpRefusal(503, 50301, f"{error}: try again later"))
        context = RequestContext(
            version=0, client_id="", client_host=host, principal=principal, listener=self.name
        )
        refusal: HttpRefusal | None
        answer: web.StreamResponse
        try:
            answer = await route.handle(context, request)
            refusal = None
        except HttpRefusal as refused:
            answer, refusal = self._show(refused), refused
        except Exception:  # noqa: BLE001 - it is logged, and the client is told that it failed
            _log.exception("%s of %s failed", route.api, self.name)
            refusal = HttpRefusal(500, 50001, "the broker's log has the reason")
            answer = self._show(refusal)
        await self._audit(route, context, request, refusal)
        return answer

    def _unauthenticated(self, host: str, error: Unauthenticated) -> web.Response:
        """Return the answer to a client that is not authenticated. As at the other listeners, it is
        in the log of the broker and not in the audit log, which anybody could fill otherwise.
        """
        self._refusals.refused(host, str(error))
        answer = self._show(HttpRefusal(401, 40101, "authentication failed or is missing"))
        for challenge in self._authentication.challenges:
            answer.headers.add(hdrs.WWW_AUTHENTICATE, challenge)
        return answer

    async def _audit(
        self,
        route: HttpRoute,
        context: RequestContext,
        request: web.Request,
        refusal: HttpRefusal | None,
    ) -> None:
        is_denied = refusal is not None and refusal.status == _FORBIDDEN
        if not route.is_change and not is_denied:
            return
        entry = {
            "principal": str(context.principal),
            "client_host": context.client_host,
            "client_id": context.client_id,
            "forwarded_by": _NOT_FORWARDED,
            "api": route.api,
            "validate_only": False,
            "resource": request.get(AUDITED_RESOURCE, request.path),
            "result": "NONE" if refusal is None else f"{refusal.code}",
        }
        await self._audit_log([entry])


def _errors_as(show: ShowRefusal) -> Middleware:
    """Return what shows aiohttp's own errors, such as that of an unknown path, as a listener shows
    refusals."""

    @web.middleware
    async def show_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPError as error:
            message = f"{request.method} {request.path}: {error.reason}"
            answer = show(HttpRefusal(error.status, error.status, message))
            if hdrs.ALLOW in error.headers:
                answer.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
            return answer

    return show_errors
