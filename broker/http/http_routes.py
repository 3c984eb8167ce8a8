"""What a listener serves: routes, their handlers, and the errors by which they refuse."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from aiohttp import web

from quorate.broker.kafka.connection.requests import RequestContext

Handle: TypeAlias = Callable[[RequestContext, web.Request], Awaitable[web.StreamResponse]]
"""Carries out a request of an authenticated client. The context is the one that a request over the
Kafka protocol would have: principal, client host and listener. The rights are the handler's to ask
for, by ``Authorizer.rights_of(context)``.
"""

AUDITED_RESOURCE: Final = web.RequestKey("audited_resource", str)
"""A handler may say what its request is about, for the audit log, such as ``subject orders-value``.
Otherwise that is the path."""


class HttpRoute(NamedTuple):
    """One route. ``path`` is a pattern of aiohttp's, such as ``/subjects/{subject}``.

    ``api`` is the name of the route in the audit log. If ``is_change`` is set, all its requests are
    in the audit log, and otherwise only those that are refused for want of a right.
    """

    method: str
    path: str
    api: str
    handle: Handle
    is_change: bool = False


class HttpRefusal(Exception):
    """A request is refused. ``code`` is for programs, and may be finer than the HTTP status."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


ShowRefusal: TypeAlias = Callable[[HttpRefusal], web.Response]
"""Returns the answer to a request that is refused."""


def refusal_as_json(refusal: HttpRefusal) -> web.Response:
    """Return the refusal as ``{"error_code": …, "message": …}``."""
    body = {"error_code": refusal.code, "message": refusal.message}
    return web.json_response(body, status=refusal.status)
