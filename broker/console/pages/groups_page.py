"""The list of consumer groups, and the page of one: members, lag, and resetting its offsets."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from quorate.broker.common.errors import error_name
from quorate.broker.console.asking.cluster_figures import Figures
from quorate.broker.console.asking.console_apis import (
    CONSUMER_GROUP_DESCRIBE,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_FETCH,
)
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.asking.offsets import LATEST, list_offsets
from quorate.broker.console.asking.person import Person
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.figures.figure_history import about, group_series
from quorate.broker.console.pages.charts import COUNT, chart, spark
from quorate.broker.console.pages.formats import number, short_number
from quorate.broker.console.pages.markup import NOTHING, Html, h, url
from quorate.broker.console.pages.page import (
    LIVE_EVERY_S,
    SLOWLY_LIVE_EVERY_S,
    Page,
    PageNotFound,
    PageRequest,
    Section,
)
from quorate.broker.console.pages.parts import (
    PAGE_ROWS,
    Column,
    Sorting,
    action_form,
    field,
    note,
    page_of,
    pager,
    panel,
    pill,
    query_form,
    select,
    table,
    text_input,
    tile,
    tiles,
    unfolding,
)
from quorate.broker.console.views.group_view import (
    GroupView,
    MemberRow,
    PartitionRow,
    classic_group,
    committed_of,
    consumer_group,
    lag_of,
    partition_rows,
)
from quorate.broker.console.views.series import Line, added, last
from quorate.broker.kafka.wire.codec import Message
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

PARTITIONS_MAX: Final = 5_000
"""The most partitions of a group whose ends are asked for."""

MEMBERS_SHOWN: Final = 200


class ListedGroup(NamedTuple):
    """A group as the list shows it."""

    name: str
    state: str
    kind: str
    coordinator: int


async def groups_page(parts: ConsoleParts, request: PageRequest) -> Page:
    if request.path:
        return await _group_page(parts, request)
    groups, missing = await list_groups(parts, request.person)
    part = request.asked("q")
    found = [one for one in groups if part.lower() in one.name.lower()]
    sort = request.asked("sort", "lag")
    figures = await parts.figures.read(
        request.person,
        [group_series("lag", one.name) for one in found[:PAGE_ROWS]],
        ["lag group"],
    )
    lags = _lags(figures)
    if sort == "lag":
        found.sort(key=lambda one: (-lags.get(one.name, 0.0), one.name))
    page, place = page_of(found, request.asked("page", "1"))
    query = {"q": part}
    listed = table(
        _COLUMNS,
        [_listed(one, lags, figures) for one in found[place]],
        "There is no group like that." if part else "No consumer group has been here yet.",
        Sorting(("groups",), query, sort),
    )
    notes = [note(one, kind="serious") for one in missing]
    pages = pager(("groups",), {**query, "sort": sort}, page, len(found), "group")
    choice = query_form(
        ("groups",),
        h(
            "input",
            type="search",
            name="q",
            value=part,
            placeholder="Part of a name",
            aria_label="Part of a name",
            data_focus="/",
        ),
        h("input", type="hidden", name="sort", value=sort),
    )
    return Page(
        "Groups",
        "groups",
        (
            Section("choice", choice),
            Section("groups", panel("Consumer groups", notes, listed, pages), live=True),
        ),
        live_every_s=SLOWLY_LIVE_EVERY_S,
    )


_COLUMNS: Final = (
    Column("Group", sort="name", wide=True),
    Column("State"),
    Column("Protocol"),
    Column("Coordinator"),
    Column("Lag", numeric=True, sort="lag"),
    Column("Last hour"),
)


async def list_groups(parts: ConsoleParts, person: Person) -> tuple[list[ListedGroup], list[str]]:
    """Return the groups that the person may see, by name, and why some may be missing."""
    body: Message = {"states_filter": [], "types_filter": []}
    answers = await parts.requests.ask_each(person, LIST_GROUPS, body)
    found: list[ListedGroup] = []
    missing: list[str] = []
    for broker, answer in answers.items():
        if isinstance(answer, AskFailed):
            missing.append(f"Groups of broker {broker} are missing: {answer}")
            continue
        if answer["error_code"]:
            reason = error_name(answer["error_code"])
            missing.append(f"Groups of broker {broker} may be missing: {reason}")
        found += [
            ListedGroup(one["group_id"], one["group_state"], one["group_type"], broker)
            for one in answer["groups"]
        ]
    return sorted(found), missing


def _lags(figures: Figures) -> dict[str, float]:
    return {
        about(name)[2]: sum(last(values) or 0.0 for values in figures.of(name).values())
        for name in figures.names("lag group ")
    }


def _listed(one: ListedGroup, lags: dict[str, float], figures: Figures) -> list[Html | str]:
    history = added(list(figures.of(group_series("lag", one.name)).values()))
    return [
        h("a", one.name, href=url("groups", one.name)),
        _state(one.state),
        one.kind,
        h("a", f"broker {one.coordinator}", href=url("brokers", str(one.coordinator))),
        short_number(lags[one.name]) if one.name in lags else "—",
        spark(history) if history else "",
    ]


def _state(state: str) -> Html:
    return pill(state, {"Stable": "ok", "Empty": "", "Dead": ""}.get(state, "note"))


async def _group_page(parts: ConsoleParts, request: PageRequest) -> Page:
    name = request.path[0]
    try:
        view = await describe_group(parts, request.person, name)
        committed = await committed_offsets(parts, request.person, name)
    except AskFailed as error:
        raise PageNotFound(f"group {name}: {error}") from error
    assigned = {tp for member in view.members for tp in member.partitions}
    wanted = sorted({*committed, *assigned})[:PARTITIONS_MAX]
    ends, _ = await list_offsets(parts.requests, request.person, wanted, LATEST)
    rows = partition_rows(view, committed, ends)
    figures = await parts.figures.read(request.person, [group_series("lag", name)])
    page, place = page_of(rows, request.asked("page", "1"))
    listed = table(_PARTITION_COLUMNS, map(_partition, rows[place]), "It has committed nothing.")
    pages = pager(("groups", name), {}, page, len(rows), "partition")
    return Page(
        name,
        "groups",
        (
            Section("tiles", _tiles(view, rows), live=True),
            Section("chart", _chart(name, figures), live=True),
            Section("partitions", panel("Partitions", listed, pages), live=True),
            Section("members", _members(view.members), live=True),
            Section("change", _changes(request, name, rows)),
        ),
        trail=(("Groups", url("groups")),),
        live_every_s=LIVE_EVERY_S,
    )


async def describe_group(parts: ConsoleParts, person: Person, name: str) -> GroupView:
    """Return a group of either protocol.

    Raises:
        AskFailed: the group has no coordinator, or the person may not describe it.
    """
    at = parts.requests.coordinator_of_group(name)
    body = {"group_ids": [name], "include_authorized_operations": False}
    answer = await parts.requests.ask(person, CONSUMER_GROUP_DESCRIBE, body, at)
    described = answer["groups"][0]
    if not described["error_code"]:
        return consumer_group(described)
    if described["error_code"] not in _TRY_CLASSIC:
        raise AskFailed(described["error_message"] or error_name(described["error_code"]))
    body = {"groups": [name], "include_authorized_operations": False}
    answer = await parts.requests.ask(person, DESCRIBE_GROUPS, body, at)
    described = answer["groups"][0]
    if described["error_code"]:
        raise AskFailed(error_name(described["error_code"]))
    return classic_group(described)


_TRY_CLASSIC: Final = frozenset({errors_pb2.GROUP_ID_NOT_FOUND, errors_pb2.UNSUPPORTED_VERSION})


async def committed_offsets(
    parts: ConsoleParts, person: Person, name: str
) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group.

    Raises:
        AskFailed: the group has no coordinator, or the person may not describe it.
    """
    body = {"groups": [{"group_id": name, "topics": None}], "require_stable": False}
    at = parts.requests.coordinator_of_group(name)
    answer = await parts.requests.ask(person, OFFSET_FETCH, body, at)
    if code := answer["groups"][0]["error_code"]:
        raise AskFailed(error_name(code))
    return committed_of(answer)


def _tiles(view: GroupView, rows: Sequence[PartitionRow]) -> Html:
    behind = sum((one.lag or 0) > 0 for one in rows)
    return tiles(
        tile(
            "Lag",
            short_number(lag_of(rows)),
            f"in {number(behind)} of {number(len(rows))} partitions",
        ),
        tile("State", _state(view.state), f"{view.kind} protocol"),
        tile("Members", number(len(view.members)), view.protocol or "no assignment"),
    )


def _chart(name: str, figures: Figures) -> Html:
    lines = [Line("lag", values) for values in figures.of(group_series("lag", name)).values()]
    return h(
        "div",
        chart("Lag over time", lines, COUNT, figures.last_at_ms, figures.interval_ms),
        class_="charts one",
    )


_PARTITION_COLUMNS: Final = (
    Column("Topic", wide=True),
    Column("Partition", numeric=True),
    Column("Committed", numeric=True),
    Column("End", numeric=True),
    Column("Lag", numeric=True),
    Column("Read by"),
    Column(""),
)


def _partition(row: PartitionRow) -> list[Html | str]:
    topic, partition = row.tp.topic, row.tp.partition
    at = row.committed if row.committed is not None else 0
    link = url("topics", topic, "records", partition=partition, **{"from": "offset", "at": str(at)})
    return [
        h("a", topic, href=url("topics", topic)),
        number(partition),
        number(row.committed),
        number(row.end),
        pill(number(row.lag), "note") if row.lag else number(row.lag),
        row.member or h("span", "nobody", class_="muted"),
        h("a", "next record", href=link),
    ]


def _members(members: Sequence[MemberRow]) -> Html:
    columns = (
        Column("Client"),
        Column("Member", wide=True),
        Column("Host"),
        Column("Instance"),
        Column("Partitions", numeric=True),
        Column(""),
    )
    rows = [
        [
            one.client_id,
            h("code", one.member_id),
            one.client_host,
            one.instance_id,
            number(len(one.partitions)),
            one.detail,
        ]
        for one in members[:MEMBERS_SHOWN]
    ]
    more = (
        note(f"{len(members) - MEMBERS_SHOWN} more members are not shown.")
        if len(members) > MEMBERS_SHOWN
        else NOTHING
    )
    return panel("Members", table(columns, rows, "The group has no members now."), more)


_TO: Final = (
    ("earliest", "the earliest offset"),
    ("latest", "the latest offset"),
    ("time", "a time (UTC)"),
    ("offset", "an offset"),
    ("shift", "forward or back by"),
)


def _changes(request: PageRequest, name: str, rows: Sequence[PartitionRow]) -> Html:
    topics = sorted({one.tp.topic for one in rows})
    reset = action_form(
        "reset-offsets",
        request.token,
        note("Only the offsets of a group without members can be reset: stop its consumers first."),
        field("Topic", select("topic", [(one, one) for one in topics])),
        field("Partition", text_input("partition", placeholder="all", inputmode="numeric")),
        field("To", select("to", _TO)),
        field(
            "Offset, time or number", text_input("at", placeholder="4711, 2026-01-31 12:00 or -100")
        ),
        label="Reset",
        hidden={"group": name, "back": url("groups", name)},
    )
    delete = action_form(
        "delete-group",
        request.token,
        field(
            "Type the name of the group", text_input("confirmed", required=True, placeholder=name)
        ),
        label="Delete for ever",
        hidden={"group": name, "back": url("groups")},
        danger=True,
    )
    return h(
        "div",
        unfolding("Reset offsets", reset) if topics else NOTHING,
        unfolding("Delete the group", delete),
        class_="changes",
    )
