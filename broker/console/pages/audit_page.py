"""The audit trail of all brokers."""

from typing import Final

from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.markup import Html, h, url
from quorate.broker.console.pages.page import Page, PageRequest, Section
from quorate.broker.console.pages.parts import (
    Column,
    note,
    page_of,
    pager,
    panel,
    pill,
    query_form,
    table,
)
from quorate.broker.console.views.audit_view import AuditRow, audit_rows, matching

LINES: Final = 500
_COLUMNS: Final = (
    Column("Time (UTC)"),
    Column("Who"),
    Column("From"),
    Column("Request"),
    Column("Resource", wide=True),
    Column("Result"),
    Column("Broker", numeric=True),
    Column(""),
)


async def audit_page(parts: ConsoleParts, request: PageRequest) -> Page:
    answers = await parts.figures.audit_logs(request.person, LINES)
    told = {one: of for one, of in answers.items() if not isinstance(of, AskFailed)}
    notes = [
        note(f"Broker {one}: {why}", kind="serious")
        for one, why in answers.items()
        if isinstance(why, AskFailed)
    ]
    part = request.asked("q")
    rows = matching(audit_rows(told), part)
    page, place = page_of(rows, request.asked("page", "1"))
    choice = query_form(
        ("audit",),
        h(
            "input",
            type="search",
            name="q",
            value=part,
            placeholder="Who, what or result",
            aria_label="Who, what or result",
            data_focus="/",
        ),
    )
    listed = table(_COLUMNS, map(_row, rows[place]), "No change is on record.")
    pages = pager(("audit",), {"q": part}, page, len(rows), "line")
    hint = note(
        "The newest ",
        str(LINES),
        " lines of each live broker. Each broker keeps a file with all lines.",
    )
    return Page(
        "Audit trail",
        "audit",
        (Section("choice", choice), Section("audit", panel("Changes", notes, listed, pages, hint))),
    )


def _row(row: AuditRow) -> list[Html | str]:
    return [
        row.timestamp.replace("T", " ").removesuffix("+00:00"),
        h("b", row.principal),
        f"{row.client_host} {row.client_id}".strip(),
        row.api,
        h("code", row.resource),
        pill(row.result, "serious") if row.is_refused else pill("done", "ok"),
        h("a", str(row.broker), href=url("brokers", str(row.broker))),
        h("span", row.detail, class_="muted"),
    ]
