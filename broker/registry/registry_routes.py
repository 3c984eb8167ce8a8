"""The routes of the schema registry over HTTP."""

from functools import partial
from typing import Final

from aiohttp import web

from quorate.broker.http.http_bodies import BodyReader
from quorate.broker.http.http_routes import AUDITED_RESOURCE, HttpRefusal, HttpRoute
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.registry.operations.calls import RegistryCall
from quorate.broker.registry.operations.table import OPERATIONS, Operation
from quorate.broker.registry.registry_errors import RegistryError
from quorate.broker.registry.registry_router import RegistryRouter

REGISTRY: Final = "REGISTRY"
"""The name of the listener."""

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TAKEN_TYPES: Final = frozenset(
    {
        CONTENT_TYPE,
        "application/vnd.schemaregistry+json",
        "application/json",
        "application/octet-stream",
    }
)
"""The types of bodies. A page of a browser cannot send them to another site without asking."""


def registry_routes(router: RegistryRouter) -> list[HttpRoute]:
    """Return all routes. ``router`` has the requests carried out."""
    bodies = BodyReader()
    routes = [HttpRoute("GET", "/", "GetRoot", _root)]
    for one in OPERATIONS:
        handle = partial(_serve, router, bodies, one)
        routes.append(HttpRoute(one.method, one.path, one.name, handle, one.is_change))
    return routes


def refusal(refused: HttpRefusal) -> web.Response:
    """Return a refusal as Confluent's clients expect it."""
    body = {"error_code": refused.code, "message": refused.message}
    return web.json_response(body, status=refused.status, content_type=CONTENT_TYPE)


async def _root(_context: RequestContext, _request: web.Request) -> web.StreamResponse:
    """Answer as Confluent's registry does, by which clients find out whether it is there."""
    return web.json_response({}, content_type=CONTENT_TYPE)


async def _serve(
    router: RegistryRouter,
    bodies: BodyReader,
    operation: Operation,
    context: RequestContext,
    request: web.Request,
) -> web.StreamResponse:
    call = await _call(bodies, request)
    request[AUDITED_RESOURCE] = _resource(call)
    try:
        answer = await router.call(operation, call, context)
    except RegistryError as error:
        raise HttpRefusal(error.status, error.code, error.message) from error
    return web.Response(body=answer, content_type=CONTENT_TYPE)


async def _call(bodies: BodyReader, request: web.Request) -> RegistryCall:
    if request.can_read_body and request.content_type not in _TAKEN_TYPES:
        raise HttpRefusal(415, 415, f"the type of the body must be {CONTENT_TYPE}")
    return RegistryCall(
        dict(request.match_info), list(request.query.items()), await bodies.read(request)
    )


def _resource(call: RegistryCall) -> str:
    """Return what a request is about, for the audit log."""
    subject = call.parameters.get("subject")
    if subject is None:
        return "registry"
    version = call.parameters.get("version")
    return f"subject {subject}" if version is None else f"subject {subject} version {version}"
