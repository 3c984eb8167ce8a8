"""Client quotas, and the forms that set and remove them."""

from typing import Final

from quorate.broker.common.errors import error_name
from quorate.broker.console.asking.console_apis import DESCRIBE_CLIENT_QUOTAS
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.formats import number, rate
from quorate.broker.console.pages.markup import Html, h, url
from quorate.broker.console.pages.page import Page, PageRequest, Section
from quorate.broker.console.pages.parts import (
    Column,
    action_form,
    checkbox,
    field,
    note,
    page_of,
    pager,
    panel,
    select,
    table,
    text_input,
    unfolding,
)
from quorate.broker.console.views.quota_view import ENTITY_FIELDS, QUOTAS, named_entity
from quorate.broker.kafka.wire.codec import Message
from quorate.metadata_log.client_quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

_COLUMNS: Final = (Column("For", wide=True), Column("Quota"), Column("Limit"), Column(""))


async def quotas_page(parts: ConsoleParts, request: PageRequest) -> Page:
    content = await _listed(parts, request)
    return Page(
        "Quotas",
        "quotas",
        (
            Section("quotas", panel("Client quotas", *content)),
            Section("set", unfolding("Set a quota", _set_form(request.token))),
        ),
    )


async def _listed(parts: ConsoleParts, request: PageRequest) -> list[Html]:
    try:
        body = {"components": [], "strict": False}
        answer = await parts.requests.ask(request.person, DESCRIBE_CLIENT_QUOTAS, body)
    except AskFailed as error:
        return [note(str(error), kind="serious")]
    if answer["error_code"]:
        reason = answer["error_message"] or error_name(answer["error_code"])
        return [note(reason, kind="serious")]
    quotas = [(entry, value) for entry in answer["entries"] or () for value in entry["values"]]
    quotas.sort(key=lambda one: (named_entity(one[0]["entity"]), one[1]["key"]))
    page, place = page_of(quotas, request.asked("page", "1"))
    rows = [_row(entry["entity"], value, request.token) for entry, value in quotas[place]]
    pages = pager(("quotas",), {}, page, len(quotas), "quota")
    return [
        table(_COLUMNS, rows, "No client has a quota."),
        pages,
        note("Each broker counts for itself."),
    ]


def _row(entity: list[Message], value: Message, token: str) -> list[str | Html]:
    key = value["key"]
    fields = {"key": key, "back": url("quotas")}
    for one in entity:
        name = ENTITY_FIELDS[one["entity_type"]]
        if one["entity_name"] is None:
            fields[f"default_{name}"] = "1"
        else:
            fields[name] = one["entity_name"]
    return [
        named_entity(entity),
        h("code", key),
        h("b", _limit(key, value["value"])),
        action_form("remove-quota", token, label="Remove", hidden=fields, danger=True),
    ]


def _limit(key: str, value: float) -> str:
    if key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE):
        return rate(value)
    return f"{value:g} %" if key == REQUEST_PERCENTAGE else f"{number(value)}/s"


def _set_form(token: str) -> Html:
    keys = [(key, f"{key}: {meaning}") for key, meaning in QUOTAS.items()]
    return action_form(
        "set-quota",
        token,
        _whose("User", "user", "all other users"),
        _whose("Client id", "client_id", "all other client ids"),
        _whose("or address", "ip", "all other addresses"),
        field("Quota", select("key", keys)),
        field("Limit", text_input("value", required=True, inputmode="decimal")),
        label="Set",
        hidden={"back": url("quotas")},
    )


def _whose(label: str, name: str, others: str) -> Html:
    """Return the fields for one kind of entity: a name, or the default for all without a quota."""
    named = field(label, text_input(name))
    return h("div", named, checkbox(f"default_{name}", others), class_="pair")
