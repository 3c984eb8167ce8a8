"""An HTTP listener in the process of a test, with users and a list instead of an audit log file."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web
from yarl import URL

from quorate.broker.assembly.http_listeners import HttpListeners
from quorate.broker.changes.audit_log import AuditEntry
from quorate.broker.config.http_listeners import REGISTRY_LISTENER
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.http.http_bodies import BodyReader
from quorate.broker.http.http_routes import AUDITED_RESOURCE, HttpRefusal, HttpRoute
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.metrics.client_metrics import ClientFigures
from quorate.broker.security.credential_provider import CredentialProvider
from tests.support.sasl import credentials


class Answer(NamedTuple):
    """The answer to one request."""

    status: int
    text: str
    headers: Mapping[str, str]

    def json(self) -> Any:  # noqa: ANN401 - whatever was answered
        return json.loads(self.text)


class TriedListener:
    """A listener with a few routes. ``contexts`` are those of the requests that it has served."""

    def __init__(self, who: CredentialProvider | None = None, **overrides: object) -> None:
        """``overrides`` are keys of the configuration, with ``_`` for ``.``."""
        given: dict[str, object] = {
            "broker.id": 1,
            "log.dir": "d",
            "quorum.bootstrap.servers": "127.0.0.1:1",
            "registry.listener": "http://127.0.0.1:0",
            "connection.failed.authentication.delay.ms": 0,
        }
        named = {key.replace("_", "."): value for key, value in overrides.items()}
        self.config = BROKER_SPEC.parse(given | named)
        self.contexts: list[RequestContext] = []
        self.audited: list[AuditEntry] = []
        self.url = ""
        self._who = who or credentials(alice="secret")
        self._bodies = BodyReader(timeout_s=0.2)
        self._cleanup = AsyncExitStack()

    async def __aenter__(self) -> "TriedListener":
        listeners = HttpListeners(
            self.config, self._who, self._keep, ClientFigures(), self._cleanup
        )
        bound = await listeners.open(REGISTRY_LISTENER, "REGISTRY", self._routes())
        self.url = f"{self.config[REGISTRY_LISTENER].partition(':')[0]}://{bound}"
        return self

    async def __aexit__(self, *_raised: Any) -> None:  # noqa: ANN401 - of an exception
        await self._cleanup.aclose()

    async def ask(self, method: str, path: str, **arguments: Any) -> Answer:  # noqa: ANN401
        """Send one request, with arguments of aiohttp's client."""
        async with (
            aiohttp.ClientSession() as client,
            client.request(method, URL(f"{self.url}{path}", encoded=True), **arguments) as answer,
        ):
            return Answer(answer.status, await answer.text(), answer.headers)

    async def _keep(self, entries: Sequence[AuditEntry]) -> None:
        self.audited += entries

    def _routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/seen/{name}", "See", self._see),
            HttpRoute("POST", "/made/{name}", "Make", self._make, is_change=True),
            HttpRoute("GET", "/forbidden", "Forbidden", self._forbid),
            HttpRoute("GET", "/broken", "Broken", self._break),
        ]

    async def _see(self, context: RequestContext, request: web.Request) -> web.StreamResponse:
        self.contexts.append(context)
        return web.Response(text=request.match_info["name"])

    async def _make(self, context: RequestContext, request: web.Request) -> web.StreamResponse:
        request[AUDITED_RESOURCE] = f"thing {request.match_info['name']}"
        body = await self._bodies.read(request)
        if body == b"bad":
            raise HttpRefusal(422, 42201, "bad thing")
        return web.Response(text=f"{len(body)}")

    async def _forbid(self, context: RequestContext, request: web.Request) -> web.StreamResponse:
        raise HttpRefusal(403, 40301, "not you")

    async def _break(self, context: RequestContext, request: web.Request) -> web.StreamResponse:
        raise RuntimeError("a defect")
