"""The users who log in by SCRAM, and the forms that add, change and delete them."""

import ipaddress
from typing import Final

from quorate.broker.common.errors import error_name
from quorate.broker.console.actions.user_actions import ITERATIONS
from quorate.broker.console.asking.console_apis import DESCRIBE_USER_SCRAM_CREDENTIALS
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.markup import NOTHING, Html, h, url
from quorate.broker.console.pages.page import Page, PageRequest, Section
from quorate.broker.console.pages.parts import (
    Column,
    action_form,
    field,
    note,
    number_input,
    page_of,
    pager,
    panel,
    password_input,
    query_form,
    select,
    table,
    text_input,
    unfolding,
)
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.security.scram import BY_NUMBER, MECHANISMS
from quorate.metadata_log.rules.administration import LEAST_ITERATIONS, MOST_ITERATIONS

_COLUMNS: Final = (
    Column("User", wide=True),
    Column("Logs in by"),
    Column(""),
)
_OPEN_LINE: Final = "This connection is not encrypted: who listens to it reads the password."


async def users_page(parts: ConsoleParts, request: PageRequest) -> Page:
    part = request.asked("q")
    search = text_input("q", part, placeholder="Part of a name", data_focus="/")
    return Page(
        "Users",
        "users",
        (
            Section("choice", query_form(("users",), field("User", search))),
            Section("users", panel("Users", *await _listed(parts, request, part))),
            Section("create", unfolding("Add a user", _create_form(parts, request))),
        ),
    )


async def _listed(parts: ConsoleParts, request: PageRequest, part: str) -> list[Html]:
    try:
        body = {"users": None}
        answer = await parts.requests.ask(request.person, DESCRIBE_USER_SCRAM_CREDENTIALS, body)
    except AskFailed as error:
        return [note(str(error), kind="serious")]
    if answer["error_code"]:
        reason = answer["error_message"] or error_name(answer["error_code"])
        return [note(reason, kind="serious")]
    users = [one for one in answer["results"] if part in one["user"]]
    page, place = page_of(users, request.asked("page", "1"))
    warning = _warning(parts, request)
    rows = [_row(one, request.token, warning) for one in users[place]]
    pages = pager(("users",), {"q": part}, page, len(users), "user")
    return [table(_COLUMNS, rows, "No user logs in by SCRAM."), pages]


def _row(user: Message, token: str, warning: Html) -> list[Html | str]:
    name = user["user"]
    how = [
        h("li", f"{BY_NUMBER[one['mechanism']].name}, {one['iterations']} iterations")
        for one in user["credential_infos"]
    ]
    change = action_form(
        "change-password",
        token,
        _unseen_name(name),
        *_password_fields(warning),
        label="Change the password",
        hidden={"back": url("users")},
    )
    delete = action_form(
        "delete-user",
        token,
        field("Type the name", text_input("confirmed", required=True, placeholder=name)),
        label="Delete",
        hidden={"user": name, "back": url("users")},
        danger=True,
    )
    return [h("b", name), h("ul", how, class_="plain"), unfolding("Change", change, delete)]


def _unseen_name(name: str) -> Html:
    """Return the name of the user for password managers, which look for it beside a password."""
    return h(
        "input",
        type="text",
        name="user",
        value=name,
        autocomplete="username",
        readonly=True,
        tabindex=-1,
        aria_hidden="true",
        class_="visually-hidden",
    )


def _warning(parts: ConsoleParts, request: PageRequest) -> Html:
    """Return what stands above passwords that would cross a network in the open."""
    is_here = ipaddress.ip_address(request.person.client_host).is_loopback
    return NOTHING if parts.is_encrypted or is_here else note(_OPEN_LINE, kind="serious")


def _password_fields(warning: Html) -> list[Html]:
    return [
        warning,
        field("New password", password_input("password")),
        field("Again", password_input("again")),
    ]


def _create_form(parts: ConsoleParts, request: PageRequest) -> Html:
    mechanisms = [("", "both"), *((name, name) for name in MECHANISMS)]
    iterations = number_input("iterations", ITERATIONS, min=LEAST_ITERATIONS, max=MOST_ITERATIONS)
    return action_form(
        "create-user",
        request.token,
        field("User", h("input", type="text", name="user", autocomplete="username", required=True)),
        *_password_fields(_warning(parts, request)),
        field("Mechanism", select("mechanism", mechanisms)),
        field("Iterations", iterations),
        label="Add",
        hidden={"back": url("users")},
    )
