"""The message viewer of a topic, and the form that writes a test record."""

import asyncio
from datetime import UTC, datetime
from typing import Final

from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.asking.offsets import EARLIEST, LATEST, list_offsets
from quorate.broker.console.asking.record_reads import ReadEnd, read_records
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.formats import count, number, precise, size
from quorate.broker.console.pages.markup import NOTHING, Html, h, lines, url
from quorate.broker.console.pages.page import PageRequest, Section
from quorate.broker.console.pages.parts import (
    action_form,
    field,
    note,
    number_input,
    panel,
    pill,
    query_form,
    select,
    text_input,
    unfolding,
)
from quorate.broker.console.views.record_view import (
    Scan,
    ShownRecord,
    as_query,
    preview,
    shown_bytes,
)
from quorate.common.types import TopicPartition
from quorate.metadata_log.partitions import Topic

ROWS: Final = 50
ROWS_MAX: Final = 200
_FROM: Final = (
    ("newest", "the newest"),
    ("oldest", "the oldest"),
    ("offset", "an offset"),
    ("time", "a time (UTC)"),
)
_FORMS: Final = (("auto", "as it looks"), ("json", "JSON"), ("text", "text"), ("hex", "hex"))


class BadQuestion(ValueError):
    """Something in the query is not what it should be. The message is for the person."""


async def records_sections(
    parts: ConsoleParts, request: PageRequest, topic: Topic
) -> list[Section]:
    """Return the sections of the viewer."""
    sections = [Section("choice", panel("Records", _choice(request, topic)))]
    try:
        sections.append(Section("records", await _records(parts, request, topic)))
    except (AskFailed, BadQuestion) as error:
        sections.append(Section("records", note(str(error), kind="serious")))
    sections.append(
        Section("produce", unfolding("Write a test record", _produce_form(request, topic)))
    )
    return sections


def _choice(request: PageRequest, topic: Topic) -> Html:
    asked = request.asked
    return query_form(
        ("topics", topic.name, "records"),
        field(
            "Partition",
            number_input(
                "partition", asked("partition", "0"), min=0, max=len(topic.partitions) - 1
            ),
        ),
        field("From", select("from", _FROM, asked("from", "newest"))),
        field(
            "Offset or time", text_input("at", asked("at"), placeholder="4711 or 2026-01-31 12:00")
        ),
        field("Key contains", text_input("key", asked("key"))),
        field("Shown", select("as", _FORMS, asked("as", "auto"))),
        field(
            "Isolation",
            select(
                "isolation", (("committed", "committed"), ("all", "everything")), asked("isolation")
            ),
        ),
        label="Read",
    )


async def _records(parts: ConsoleParts, request: PageRequest, topic: Topic) -> Html:
    number_ = request.asked_number("partition", 0)
    if number_ >= len(topic.partitions):
        raise BadQuestion(f"{topic.name} has no partition {number_}")
    tp = TopicPartition(topic.name, number_)
    limit = request.asked_number("limit", ROWS, 1, ROWS_MAX)
    state = Scan(
        limit=limit,
        next_offset=await _begin(parts, request, tp, limit),
        key_part=request.asked("key").encode(),
        skip_aborted=request.asked("isolation") != "all",
    )
    begin = state.next_offset
    loop = asyncio.get_running_loop()
    end = await read_records(parts.requests, request.person, tp, state, loop.time)
    return _shown(request, tp, begin, end)


async def _begin(parts: ConsoleParts, request: PageRequest, tp: TopicPartition, limit: int) -> int:
    """Return the offset at which to begin to read."""
    where = request.asked("from", "newest")
    if where == "offset":
        at = request.asked("at")
        if not (at.isascii() and at.isdecimal() and len(at) < 19):
            raise BadQuestion(f"{at!r} is no offset")
        return int(at)
    timestamp = {"oldest": EARLIEST, "newest": LATEST}.get(where)
    if timestamp is None:
        timestamp = moment_ms(request.asked("at"))
    offset = await _offset(parts, request, tp, timestamp)
    if where == "newest":
        return max(await _offset(parts, request, tp, EARLIEST), offset - limit)
    if offset < 0:
        return await _offset(parts, request, tp, LATEST)
    return offset


async def _offset(
    parts: ConsoleParts, request: PageRequest, tp: TopicPartition, timestamp: int
) -> int:
    offsets, failed = await list_offsets(parts.requests, request.person, [tp], timestamp)
    if tp in failed:
        raise AskFailed(failed[tp])
    return offsets[tp]


def moment_ms(text: str) -> int:
    """Return a moment in ms since the epoch: a number of ms, or a date with a time in UTC.

    Raises:
        BadQuestion: it is neither.
    """
    if text.isascii() and text.isdecimal() and len(text) < 16:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadQuestion(f"{text!r} is no time: write 2026-01-31 12:00, in UTC") from None
    return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1_000)


def _shown(request: PageRequest, tp: TopicPartition, begin: int, end: ReadEnd) -> Html:
    found, state = end.scan.found, end.scan
    what = count(len(found), "record")
    searched = f" among {number(state.looked_at)} looked at" if state.key_part else ""
    form = request.asked("as", "auto")
    bounds = f"offsets {number(end.log_start_offset)} to {number(end.end_offset)}"
    rows = [_record(one, form) for one in found]
    return panel(
        f"Partition {tp.partition}",
        [note(f"Not readable: {one}", kind="serious") for one in state.unreadable[:5]],
        h("div", _HEAD, rows, class_="records")
        if rows
        else h("p", "No record here.", class_="empty"),
        _moves(request, tp, begin, end),
        aside=h("span", f"{what}{searched} · the log has {bounds}", class_="muted"),
    )


_HEAD: Final = h(
    "div",
    [h("span", title) for title in ("Offset", "Time (UTC)", "Key", "Value")],
    class_="record-head",
    aria_hidden="true",
)


def _moves(request: PageRequest, tp: TopicPartition, begin: int, end: ReadEnd) -> Html:
    """Return the links to what lies before and behind."""
    path = ("topics", tp.topic, "records")
    kept = as_query(
        {
            "partition": str(tp.partition),
            "from": "offset",
            "key": request.asked("key"),
            "as": request.asked("as"),
            "isolation": request.asked("isolation"),
        }
    )
    earlier = max(end.log_start_offset, begin - end.scan.limit)
    links = []
    if begin > end.log_start_offset:
        links.append(
            h(
                "a",
                "← Earlier",
                href=url(*path, **{**kept, "at": str(earlier)}),
                class_="button",
                rel="prev",
            )
        )
    if not end.is_at_end:
        label = "Go on searching →" if end.scan.key_part else "Later →"
        target = url(*path, **{**kept, "at": str(end.scan.next_offset)})
        links.append(h("a", label, href=target, class_="button", rel="next"))
    else:
        links.append(h("span", "the end of the log", class_="muted"))
    return h("nav", links, class_="pager", aria_label="Records")


def _record(one: ShownRecord, form: str) -> Html:
    special = pill(one.note, "note") if one.note else NOTHING
    value = "null" if one.value is None else preview(one.value)
    summary = h(
        "summary",
        h("span", number(one.offset), class_="num"),
        h("span", precise(one.timestamp_ms), class_="mono"),
        h("span", preview(one.key, 60), class_="mono cut" + (" muted" if one.key is None else "")),
        h("span", special, value, class_="mono cut" + (" muted" if one.value is None else "")),
    )
    return h(
        "details",
        summary,
        h(
            "div",
            _bytes("Key", one.key, form),
            _bytes("Value", one.value, form),
            _headers(one),
            h(
                "p",
                f"compression {one.codec}",
                f" · producer id {one.producer_id}" if one.producer_id >= 0 else "",
                f" · {one.timestamp_ms} ms",
                class_="muted",
            ),
            class_="record-body",
        ),
        class_="record",
    )


def _bytes(title: str, data: bytes | None, form: str) -> Html:
    shown = shown_bytes(data, form)
    known = [shown.form, size(shown.size)]
    if shown.schema_id is not None:
        known.append(f"schema id {shown.schema_id}")
    if shown.is_cut:
        known.append("cut")
    return h(
        "div",
        h("h3", title, " ", h("span", " · ".join(known), class_="muted")),
        h("pre", lines(shown.text), tabindex=0) if shown.text else NOTHING,
    )


def _headers(one: ShownRecord) -> Html:
    if not one.headers:
        return NOTHING
    shown = [
        h("div", h("dt", name), h("dd", preview(value, 400), class_="mono"))
        for name, value in one.headers
    ]
    return h("div", h("h3", "Headers"), h("dl", shown, class_="facts"))


def _produce_form(request: PageRequest, topic: Topic) -> Html:
    return action_form(
        "produce",
        request.token,
        field(
            "Partition",
            number_input(
                "partition", request.asked("partition", "0"), min=0, max=len(topic.partitions) - 1
            ),
        ),
        field("Key", text_input("key"), "empty: no key"),
        field("Value", h("textarea", name="value", rows=4, spellcheck="false")),
        field("Headers", text_input("headers", placeholder="name=value, name=value")),
        label="Write",
        hidden={
            "topic": topic.name,
            "back": url("topics", topic.name, "records", partition=request.asked("partition", "0")),
        },
    )
