"""The metadata log: what has changed, by whom, and the state of the cluster at any offset."""

import asyncio
import json
from collections import deque
from contextlib import aclosing
from typing import Any, Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.formats import number, when
from quorate.broker.console.pages.markup import NOTHING, Html, h, lines, url
from quorate.broker.console.pages.page import Page, PageRequest, Section
from quorate.broker.console.pages.parts import (
    Column,
    facts,
    field,
    note,
    panel,
    query_form,
    table,
    tabs,
    text_input,
)
from quorate.broker.console.views.change_rows import (
    ChangeRow,
    at_or_below,
    change_rows,
    field_changes,
)
from quorate.common.acl_types import AclOperation
from quorate.common.types import MetadataOffset
from quorate.metadata_log.image import Image
from quorate.metadata_log.tree.history import ALL_KINDS
from quorate.metadata_log.tree.tree import children, value_at
from quorate.quorum.quorum_errors import QuorumError

ROWS_MAX: Final = 100
WINDOWS: Final = (1, 8, 64, 512)
"""How many transactions a page looks at: more, the fewer changes are found. One transaction may
create thousands of partitions. The links go on to earlier transactions.
"""

NAMES_MAX: Final = 500
READ_TIMEOUT_S: Final = 20.0

_COLUMNS: Final = (
    Column("Offset", numeric=True),
    Column("Time (UTC)"),
    Column("Path", wide=True),
    Column("Change"),
    Column("By"),
    Column(""),
)


async def metadata_page(parts: ConsoleParts, request: PageRequest) -> Page:
    view = "tree" if request.path[:1] == ("tree",) else "changes"
    try:
        parts.rights(request.person).require_cluster(AclOperation.CLUSTER_ACTION)
        async with asyncio.timeout(READ_TIMEOUT_S):
            if view == "tree":
                sections = await _tree_sections(parts, request)
            else:
                sections = await _change_sections(parts, request)
    except (KafkaError, QuorumError) as error:
        reason = error.message if isinstance(error, KafkaError) else str(error)
        sections = [Section("failed", note(reason, kind="serious"))]
    except TimeoutError:
        sections = [
            Section("failed", note("The metadata log could not be read in time.", kind="serious"))
        ]
    links = [("Changes", url("metadata")), ("Tree", url("metadata", "tree"))]
    return Page(
        "Metadata log",
        "metadata",
        (Section("tabs", tabs(links, view.capitalize())), *sections),
    )


# -- changes -------------------------------------------------------------------------------------


async def _change_sections(parts: ConsoleParts, request: PageRequest) -> list[Section]:
    path = request.asked("path", "/")
    newest = parts.image.offset
    end = request.asked_number("before", newest + 1, 1, newest + 1)
    rows, first = await _changes(parts, path, end)
    choice = query_form(
        ("metadata",),
        field("Path", text_input("path", path, placeholder="/brokers/topics/events", size=36)),
        field(
            "Before offset",
            text_input(
                "before", request.asked("before"), placeholder=str(newest + 1), inputmode="numeric"
            ),
        ),
    )
    listed = table(_COLUMNS, map(_row, rows), "Nothing changed there in these transactions.")
    looked = f"offsets {number(first)} to {number(end - 1)}"
    earlier = (
        h(
            "a",
            "← Earlier",
            href=url("metadata", path=path, before=first),
            class_="button",
            rel="next",
        )
        if first > 1 and rows is not None
        else NOTHING
    )
    later = (
        h("a", "Newest", href=url("metadata", path=path), class_="button")
        if end <= newest
        else NOTHING
    )
    nav = h("nav", earlier, later, class_="pager", aria_label="Offsets")
    return [
        Section("choice", choice),
        Section("changes", panel("Changes", listed, nav, aside=h("span", looked, class_="muted"))),
    ]


async def _changes(parts: ConsoleParts, path: str, end: int) -> tuple[list[ChangeRow], int]:
    """Return the newest changes before ``end``, the newest first, and the offset from which on they
    are complete.
    """
    rows: list[ChangeRow] = []
    first = end
    for window in WINDOWS:
        start = max(1, end - window)
        rows, first = await _changes_from(parts, path, start, end)
        if len(rows) >= ROWS_MAX or start == 1 or first > start:
            break
    return rows, first


async def _changes_from(
    parts: ConsoleParts, path: str, start: int, end: int
) -> tuple[list[ChangeRow], int]:
    kept: deque[ChangeRow] = deque(maxlen=ROWS_MAX)
    first, found = start, 0
    reading = parts.history.changes(MetadataOffset(start), MetadataOffset(end), ALL_KINDS)
    async with aclosing(reading) as frames:
        async for frame in frames:
            first = max(first, frame.first_offset)
            for row in at_or_below(change_rows(frame), path):
                kept.append(row)
                found += 1
    if found > len(kept):
        # An offset is left out as a whole, unless it alone has more changes than a page.
        first = kept[0].offset + (kept[0].offset < kept[-1].offset)
        kept = deque(row for row in kept if row.offset >= first)
    return list(reversed(kept)), first


def _row(row: ChangeRow) -> list[Html | str]:
    asked = (
        [h("b", row.principal), f" at {row.client_host}", h("br"), f"{row.api} by "]
        if row.principal
        else []
    )
    tree = url("metadata", "tree", offset=row.offset, path=row.key)
    return [
        number(row.offset),
        when(row.timestamp_ms),
        h("code", row.key),
        _values(row),
        h("span", asked, h("span", row.writer, class_="muted")),
        h("a", "state then", href=tree),
    ]


def _values(row: ChangeRow) -> Html:
    changes = [
        h(
            "div",
            h("span", one.name, class_="muted") if one.name else NOTHING,
            h("del", one.old) if one.old else NOTHING,
            h("ins", one.new) if one.new else NOTHING,
        )
        for one in field_changes(row)
    ]
    return h("div", h("span", row.kind, class_="muted"), changes, class_="diff")


# -- the tree at an offset -----------------------------------------------------------------------


async def _tree_sections(parts: ConsoleParts, request: PageRequest) -> list[Section]:
    path = "/" + request.asked("path", "/").strip("/")
    newest = parts.image.offset
    offset = request.asked_number("offset", newest, 0, newest)
    image = await parts.history.image_at(MetadataOffset(offset))
    kept = "" if offset == newest else str(offset)
    choice = query_form(
        ("metadata", "tree"),
        field("Path", text_input("path", path, size=36)),
        field(
            "As of offset",
            text_input("offset", kept, placeholder=f"{newest}, the newest", inputmode="numeric"),
        ),
    )
    return [Section("choice", choice), Section("tree", _tree(image, path, kept))]


def _tree(image: Image, path: str, offset: str) -> Html:
    def link(title: str, target: str) -> Html:
        return h("a", title, href=url("metadata", "tree", path=target, offset=offset))

    steps = [part for part in path.split("/") if part]
    trail = [link("/", "/")]
    for place, step in enumerate(steps, start=1):
        trail += [link(step, "/" + "/".join(steps[:place])), h("span", "/", class_="slash")]
    value, names = value_at(image, path), children(image, path)
    if value is None and names is None:
        return panel("Tree", note(f"Nothing is at {path} as of offset {image.offset}."))
    below = path.rstrip("/")
    listed = h(
        "ul",
        [h("li", link(name, f"{below}/{name}")) for name in (names or ())[:NAMES_MAX]],
        class_="names",
    )
    more = len(names or ()) - NAMES_MAX
    history = h("a", "Changes of this path", href=url("metadata", path=path))
    return panel(
        "Tree",
        facts([("Path", h("span", trail)), ("As of offset", number(image.offset))]),
        h("pre", lines(_json(value)), tabindex=0) if value is not None else NOTHING,
        listed if names else NOTHING,
        note(f"{number(more)} more are not shown.") if more > 0 else NOTHING,
        aside=history,
    )


def _json(value: Any) -> str:  # noqa: ANN401 - whatever the tree holds
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
