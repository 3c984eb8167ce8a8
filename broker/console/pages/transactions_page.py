"""Transactions: those that coordinators know, with the open ones first."""

import asyncio
from typing import Final

from quorate.broker.common.errors import error_name
from quorate.broker.console.asking.console_apis import DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.formats import duration, number
from quorate.broker.console.pages.markup import Html, h, url
from quorate.broker.console.pages.page import SLOWLY_LIVE_EVERY_S, Page, PageRequest, Section
from quorate.broker.console.pages.parts import Column, note, page_of, pager, panel, pill, table
from quorate.broker.kafka.wire.codec import Message

_OPEN: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
_COLUMNS: Final = (
    Column("Transactional id", wide=True),
    Column("State"),
    Column("Producer id", numeric=True),
    Column("Epoch", numeric=True),
    Column("Open for", numeric=True),
    Column("Timeout", numeric=True),
    Column("Partitions"),
)


async def transactions_page(parts: ConsoleParts, request: PageRequest) -> Page:
    body = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    answers = await parts.requests.ask_each(request.person, LIST_TRANSACTIONS, body)
    notes = [
        note(f"Transactions of broker {one} are missing: {answer}", kind="serious")
        for one, answer in answers.items()
        if isinstance(answer, AskFailed)
    ]
    listed = [
        state
        for answer in answers.values()
        if not isinstance(answer, AskFailed)
        for state in answer["transaction_states"]
    ]
    listed.sort(key=lambda one: (one["transaction_state"] not in _OPEN, one["transactional_id"]))
    page, place = page_of(listed, request.asked("page", "1"))
    shown = listed[place]
    described = await asyncio.gather(*(_described(parts, request, one) for one in shown))
    now_ms = parts.wall_clock_ms()
    rows = [_row(one, more, now_ms) for one, more in zip(shown, described, strict=True)]
    content = table(_COLUMNS, rows, "No transactional producer has been here yet.")
    pages = pager(("transactions",), {}, page, len(listed), "transactional id")
    return Page(
        "Transactions",
        "transactions",
        (Section("transactions", panel("Transactions", notes, content, pages), live=True),),
        live_every_s=SLOWLY_LIVE_EVERY_S,
    )


async def _described(parts: ConsoleParts, request: PageRequest, one: Message) -> Message | None:
    name = one["transactional_id"]
    try:
        answer = await parts.requests.ask(
            request.person,
            DESCRIBE_TRANSACTIONS,
            {"transactional_ids": [name]},
            parts.requests.coordinator_of_transactions(name),
        )
    except AskFailed:
        return None
    described: Message = answer["transaction_states"][0]
    return described


def _row(one: Message, more: Message | None, now_ms: int) -> list[Html | str]:
    state = one["transaction_state"]
    head = [
        h("code", one["transactional_id"]),
        pill(state, "note" if state in _OPEN else ""),
        str(one["producer_id"]),
    ]
    if more is None or more["error_code"]:
        reason = "" if more is None else error_name(more["error_code"])
        return [*head, "—", "—", "—", h("span", reason, class_="muted")]
    began_ms = more["transaction_start_time"]
    open_ms = now_ms - began_ms if began_ms > 0 and state in _OPEN else 0
    is_long = open_ms > more["transaction_timeout"] > 0
    open_for = duration(open_ms) if open_ms else "—"
    partitions = [
        h("a", f"{topic['topic']} ({len(topic['partitions'])})", href=url("topics", topic["topic"]))
        for topic in more["topics"][:4]
    ]
    return [
        *head,
        number(more["producer_epoch"]),
        pill(open_for, "serious") if is_long else open_for,
        duration(more["transaction_timeout"]),
        [[one_link, " "] for one_link in partitions],  # type: ignore[list-item]
    ]
