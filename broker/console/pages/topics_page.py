"""The list of topics, and the form that creates one."""

from typing import Final

from quorate.broker.console.asking.cluster_figures import Figures
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.figures.figure_history import about, topic_series
from quorate.broker.console.health.topic_health import TopicHealth
from quorate.broker.console.pages.charts import spark
from quorate.broker.console.pages.formats import number, rate
from quorate.broker.console.pages.markup import Html, h, url
from quorate.broker.console.pages.page import SLOWLY_LIVE_EVERY_S, Page, PageRequest, Section
from quorate.broker.console.pages.parts import (
    Column,
    Sorting,
    action_form,
    checkbox,
    field,
    number_input,
    page_of,
    pager,
    panel,
    pill,
    query_form,
    select,
    table,
    text_input,
    unfolding,
)
from quorate.broker.console.pages.topic_page import topic_page
from quorate.broker.console.views.series import added, total_now
from quorate.broker.console.views.topic_list import SHOWN, SORTS, TopicRow, arranged, chosen

_COLUMNS: Final = (
    Column("Topic", sort="name", wide=True),
    Column("Partitions", numeric=True, sort="partitions"),
    Column("Replication", numeric=True),
    Column("State", sort="trouble"),
    Column("Written", numeric=True, sort="in"),
    Column("Read", numeric=True, sort="out"),
    Column("Last hour"),
)


async def topics_page(parts: ConsoleParts, request: PageRequest) -> Page:
    if request.path:
        return await topic_page(parts, request)
    every = await parts.visible_topics(request.person)
    part, show = request.asked("q"), request.asked("show")
    internal = request.asked("internal") == "1"
    sort = request.asked("sort", "name")
    sort = sort if sort in SORTS else "name"
    found = chosen(every, part, show, internal=internal)
    figures = await _figures(parts, request, sorted(found), sort)
    rows = arranged(found, _rates(figures, "bytes_in"), _rates(figures, "bytes_out"), sort)
    page, place = page_of(rows, request.asked("page", "1"))
    query = {"q": part, "show": show, "internal": "1" if internal else ""}
    listed = table(
        _COLUMNS,
        [_row(one, figures) for one in rows[place]],
        "No topic is like that." if every else "There is no topic yet.",
        Sorting(("topics",), query, sort),
    )
    pages = pager(
        ("topics",), {**query, "sort": sort if sort != "name" else ""}, page, len(rows), "topic"
    )
    return Page(
        "Topics",
        "topics",
        (
            Section("choice", _choice(part, show, internal=internal, sort=sort)),
            Section("topics", panel("Topics", listed, pages), live=True),
            Section("create", unfolding("Create a topic", create_form(request))),
        ),
        live_every_s=SLOWLY_LIVE_EVERY_S,
    )


async def _figures(
    parts: ConsoleParts, request: PageRequest, names: list[str], sort: str
) -> Figures:
    """Return the traffic of the topics on this page, or of the busiest if they come first."""
    _, place = page_of(names, request.asked("page", "1"))
    shown = names[place] if sort in ("name", "partitions", "trouble") else []
    wanted = [topic_series(figure, one) for one in shown for figure in ("bytes_in", "bytes_out")]
    largest = {"in": ["bytes_in topic"], "out": ["bytes_out topic"]}.get(sort, [])
    return await parts.figures.read(request.person, wanted, largest)


def _rates(figures: Figures, figure: str) -> dict[str, float]:
    return {
        about(name)[2]: total_now(figures.of(name)) or 0.0
        for name in figures.names(f"{figure} topic ")
    }


def _choice(part: str, show: str, *, internal: bool, sort: str) -> Html:
    shown = [(word, title) for word, (title, _) in SHOWN.items()]
    return query_form(
        ("topics",),
        h(
            "input",
            type="search",
            name="q",
            value=part,
            placeholder="Part of a name",
            aria_label="Part of a name",
            data_focus="/",
        ),
        select("show", shown, show, "State"),
        checkbox("internal", "internal", internal),
        h("input", type="hidden", name="sort", value=sort),
    )


def _row(row: TopicRow, figures: Figures) -> list[Html | str]:
    history = added(list(figures.of(topic_series("bytes_in", row.name)).values()))
    return [
        h("a", row.name, href=url("topics", row.name)),
        number(row.health.partitions),
        number(row.health.replication_factor),
        state_of_topic(row.health),
        rate(row.bytes_in),
        rate(row.bytes_out),
        spark(history) if history else "",
    ]


def state_of_topic(health: TopicHealth) -> Html:
    """Return what is wrong with a topic, or that nothing is."""
    found = []
    if health.offline_count:
        found.append(pill(f"{number(health.offline_count)} offline", "critical"))
    if health.under_min_isr_count:
        found.append(pill(f"{number(health.under_min_isr_count)} under min ISR", "critical"))
    if health.under_replicated_count:
        found.append(pill(f"{number(health.under_replicated_count)} under-replicated", "serious"))
    if health.moving:
        found.append(pill(f"{number(health.moving)} moving", "note"))
    return Html("".join(found)) or pill("ok", "ok")


def create_form(request: PageRequest) -> Html:
    return action_form(
        "create-topic",
        request.token,
        field("Name", text_input("name", required=True, maxlength=249)),
        field("Partitions", number_input("partitions", 6, min=1, max=10_000)),
        field("Replication factor", number_input("replication", 3, min=1, max=100)),
        field(
            "Configs",
            text_input("configs", placeholder="retention.ms=86400000, cleanup.policy=compact"),
            "key=value, separated by commas",
        ),
        label="Create",
        hidden={"back": url("topics")},
    )
