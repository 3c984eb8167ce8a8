"""The routes of the schema registry, as Confluent's REST API has them."""

from typing import Final

from aiohttp import web

from quorate.broker.http.http_routes import HttpRoute
from quorate.broker.kafka.connection.requests import RequestContext

REGISTRY: Final = "REGISTRY"
"""The name of the listener."""


async def _root(_context: RequestContext, _request: web.Request) -> web.StreamResponse:
    """Answer as Confluent's registry does, which clients use to find out whether it is there."""
    return web.json_response({})


def registry_routes() -> list[HttpRoute]:
    return [HttpRoute("GET", "/", "Root", _root)]
