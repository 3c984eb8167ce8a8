"""The routes of the console: pages, live updates, actions and files."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from aiohttp import web

from quorate.broker.console import assets
from quorate.broker.console.actions.action import Action
from quorate.broker.console.actions.form import BadForm, Form, Outcome
from quorate.broker.console.actions.form_tokens import FormTokens
from quorate.broker.console.actions.table import ACTIONS
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.asking.person import Person
from quorate.broker.console.browser_checks import SECURITY_HEADERS, is_from_here, may_be_named
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.live_updates import LiveUpdates
from quorate.broker.console.pages.document import document
from quorate.broker.console.pages.markup import h, url
from quorate.broker.console.pages.page import Page, PageNotFound, PageRequest, Section
from quorate.broker.console.pages.parts import Column, note, panel, pill, table
from quorate.broker.console.pages.table import PAGES
from quorate.broker.http.http_bodies import BodyReader
from quorate.broker.http.http_routes import AUDITED_RESOURCE, HttpRefusal, HttpRoute
from quorate.broker.kafka.connection.requests import RequestContext

log = logging.getLogger(__name__)

PAGES_AT_ONCE: Final = 8
PAGE_TIMEOUT_S: Final = 30.0
FIELDS_MAX: Final = 50
QUERY_FIELDS_MAX: Final = 1_000
"""The most fields of a page's query, which may name brokers one by one."""
_ASSET_SECONDS: Final = 31_536_000


class ConsoleRoutes:
    """Answers the requests of browsers. The listener has authenticated who sends them."""

    def __init__(
        self, parts: ConsoleParts, tokens: FormTokens, allowed_hosts: Sequence[str]
    ) -> None:
        self._parts = parts
        self._tokens = tokens
        self._allowed_hosts = allowed_hosts
        self._turns = asyncio.Semaphore(PAGES_AT_ONCE)
        self._bodies = BodyReader()
        self.live = LiveUpdates()

    def routes(self) -> list[HttpRoute]:
        """Return what the listener serves."""
        actions = [
            HttpRoute(
                "POST",
                url("actions", one.name),
                f"Console {one.name}",
                partial(self._act, one),
                is_change=one.is_audited_here,
            )
            for one in ACTIONS
        ]
        return [
            HttpRoute("GET", "/assets/{version}/{name}", "Console asset", self._asset),
            HttpRoute("GET", "/events", "Console events", self._events),
            *actions,
            HttpRoute("GET", "/{path:.*}", "Console page", self._page),
        ]

    async def _page(self, context: RequestContext, request: web.Request) -> web.StreamResponse:
        self._check_host(request)
        person = Person(context.principal, context.client_host)
        page = await self._made(person, _parts_of(request.rel_url.raw_path), request.query)
        events = url("events", at=str(request.rel_url)) if page.live_every_s else ""
        return self._document(page, person, events)

    async def _events(self, context: RequestContext, request: web.Request) -> web.StreamResponse:
        self._check_host(request)
        person = Person(context.principal, context.client_host)
        target = urlsplit(request.query.get("at", "/"))
        query = dict(parse_qsl(target.query, max_num_fields=QUERY_FIELDS_MAX))
        with self.live.counted(str(person.principal)) as is_within_limits:
            if not is_within_limits:
                raise HttpRefusal(503, 503, "too many live pages are open")
            make = partial(self._made, person, _parts_of(target.path), query, only_live=True)
            return await self.live.send(request, make)

    async def _asset(self, context: RequestContext, request: web.Request) -> web.StreamResponse:
        found = assets.assets().get(request.match_info["name"])
        if found is None:
            raise HttpRefusal(404, 404, "there is no such file")
        return web.Response(
            body=found.content,
            content_type=found.content_type,
            charset="utf-8",
            headers={
                **SECURITY_HEADERS,
                "Cache-Control": f"private, max-age={_ASSET_SECONDS}, immutable",
            },
        )

    async def _act(
        self, action: Action, context: RequestContext, request: web.Request
    ) -> web.StreamResponse:
        """Carry out an action of a form that a page of this console has made."""
        self._check_host(request)
        person = Person(context.principal, context.client_host)
        fields = await self._fields(request)
        request[AUDITED_RESOURCE] = _resource_of(fields)
        if not is_from_here(request.headers) or not self._tokens.is_good(
            str(person.principal), fields.get("token", "")
        ):
            raise HttpRefusal(
                403, 403, "this form was not made for you here, or is too old: load the page again"
            )
        try:
            outcomes = await action.carry_out(self._parts, person, Form(fields))
        except (BadForm, AskFailed) as error:
            outcomes = [Outcome(action.title, "", str(error))]
        page = _result_page(action, outcomes, fields.get("back", "/"))
        return self._document(page, person, "")

    async def _fields(self, request: web.Request) -> dict[str, str]:
        """Return the fields of a form.

        Raises:
            HttpRefusal: it is none, is too large, or took too long.
        """
        body = await self._bodies.read(request)
        try:
            return dict(
                parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
            )
        except ValueError:
            raise HttpRefusal(400, 400, "the form is malformed") from None

    async def _made(
        self,
        person: Person,
        path: tuple[str, ...],
        query: Mapping[str, str],
        *,
        only_live: bool = False,
    ) -> Page:
        area, rest = (path[0], path[1:]) if path else ("", ())
        make = PAGES.get(area)
        token = self._tokens.make(str(person.principal))
        asked = PageRequest(person, rest, query, token, only_live)
        if make is None:
            return _missing_page(f"there is no page /{'/'.join(path)}")
        try:
            async with self._turns, asyncio.timeout(PAGE_TIMEOUT_S):
                return await make(self._parts, asked)
        except PageNotFound as error:
            return _missing_page(str(error), area)
        except TimeoutError:
            return _missing_page("the page took too long: ask for less", area, 503)

    def _document(self, page: Page, person: Person, events: str) -> web.Response:
        text = document(
            page,
            cluster=self._parts.quorum.cluster_id,
            broker=self._parts.requests.broker_id,
            who=str(person.principal),
            assets=url("assets", assets.version()),
            events=events,
        )
        return _html(text, page.status)

    def _check_host(self, request: web.Request) -> None:
        if not may_be_named(request.headers.get("Host", ""), self._allowed_hosts):
            raise HttpRefusal(
                421, 421, "the console is not known by this name: see console.allowed.hosts"
            )


def refusal_as_page(refusal: HttpRefusal) -> web.Response:
    """Return the answer to a request that the listener or a route refuses."""
    text = "<!DOCTYPE html>" + h(
        "html",
        h(
            "head",
            h("meta", charset="utf-8"),
            h("title", f"{refusal.status} · Quorate"),
            h("link", rel="stylesheet", href=url("assets", assets.version(), "console.css")),
        ),
        h(
            "body",
            h("main", h("h1", str(refusal.status)), h("p", refusal.message), class_="refusal"),
        ),
        lang="en",
    )
    return _html(text, refusal.status)


def _html(text: str, status: int) -> web.Response:
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
    # A name may hold half of a surrogate pair, which UTF-8 has no bytes for.
    body = text.encode("utf-8", "replace")
    return web.Response(
        body=body, status=status, content_type="text/html", charset="utf-8", headers=headers
    )


def _missing_page(reason: str, area: str = "", status: int = 404) -> Page:
    return Page(
        "Not found" if status == 404 else "Not in time",
        area,
        (Section("missing", note(reason, kind="serious")),),
        status=status,
    )


def _result_page(action: Action, outcomes: Sequence[Outcome], back: str) -> Page:
    """Return the page that tells what became of an action."""
    is_ours = back.startswith("/") and not back.startswith(("//", "/\\"))
    columns = (Column(""), Column("What", wide=True), Column("Result"))
    rows = [
        [
            pill("refused", "critical") if one.error else pill("done", "ok"),
            one.thing,
            one.error or one.done,
        ]
        for one in outcomes
    ]
    return Page(
        action.title,
        "",
        (
            Section(
                "result",
                panel(
                    "Result",
                    table(columns, rows, "Nothing had to be done."),
                    h("p", h("a", "Back", href=back if is_ours else "/", class_="button primary")),
                ),
            ),
        ),
        status=400 if outcomes and all(one.error for one in outcomes) else 200,
    )


def _resource_of(fields: Mapping[str, str]) -> str:
    """Return what an action is about, for the audit log: names, and no values."""
    topic, partition, group = fields.get("topic"), fields.get("partition"), fields.get("group")
    named = [f"group {group}"] if group else []
    if topic:
        named.append(f"topic {topic}" + (f"-{partition}" if partition else ""))
    return ", ".join(named)[:512]


def _parts_of(raw_path: str) -> tuple[str, ...]:
    """Return the decoded parts of a path. A name may have an encoded slash in it."""
    return tuple(unquote(part) for part in raw_path.split("/") if part)
