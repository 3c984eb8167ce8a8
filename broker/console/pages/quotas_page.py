"""Client quotas."""

from typing import Final

from quorate.broker.common.errors import error_name
from quorate.broker.console.asking.console_apis import DESCRIBE_CLIENT_QUOTAS
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.formats import number, rate
from quorate.broker.console.pages.markup import Html, h
from quorate.broker.console.pages.page import Page, PageRequest, Section
from quorate.broker.console.pages.parts import Column, note, page_of, pager, panel, table
from quorate.broker.kafka.wire.codec import Message

_BYTE_RATES: Final = frozenset({"producer_byte_rate", "consumer_byte_rate"})


async def quotas_page(parts: ConsoleParts, request: PageRequest) -> Page:
    try:
        answer = await parts.requests.ask(
            request.person, DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False}
        )
    except AskFailed as error:
        return _page(note(str(error), kind="serious"))
    if answer["error_code"]:
        reason = answer["error_message"] or error_name(answer["error_code"])
        return _page(note(reason, kind="serious"))
    rows = sorted((_row(one) for one in answer["entries"] or ()), key=lambda one: one[:2])
    page, place = page_of(rows, request.asked("page", "1"))
    columns = (Column("For"), Column("Name", wide=True), Column("Quotas"))
    content = table(columns, rows[place], "No client has a quota.")
    pages = pager(("quotas",), {}, page, len(rows), "quota")
    return _page(content, pages)


def _page(*content: Html) -> Page:
    hint = note(
        "Set quotas with ",
        h("code", "quorate configs alter --entity-type users …"),
        "; each broker counts for itself.",
    )
    return Page("Quotas", "quotas", (Section("quotas", panel("Client quotas", *content, hint)),))


def _row(entry: Message) -> list[str | Html]:
    kinds = " and ".join(one["entity_type"] for one in entry["entity"])
    names = ", ".join(
        "(default)" if one["entity_name"] is None else one["entity_name"] for one in entry["entity"]
    )
    values = [
        h("li", h("code", one["key"]), " ", h("b", _value(one["key"], one["value"])))
        for one in entry["values"]
    ]
    return [kinds, names, h("ul", values, class_="plain")]


def _value(key: str, value: float) -> str:
    if key in _BYTE_RATES:
        return rate(value)
    return f"{value:g} %" if key == "request_percentage" else f"{number(value)}/s"
