"""The pages of one topic: its partitions, its records and its configuration."""

from collections.abc import Mapping, Sequence
from typing import Final

from quorate.broker.config.internal_topics import INTERNAL_TOPICS
from quorate.broker.console.asking.cluster_figures import Figures
from quorate.broker.console.asking.offsets import EARLIEST, LATEST, list_offsets
from quorate.broker.console.asking.person import Person
from quorate.broker.console.asking.replica_sizes import replica_sizes
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.figures.figure_history import topic_series
from quorate.broker.console.health.topic_health import TopicHealth
from quorate.broker.console.pages.charts import BYTES_PER_S, COUNT, Unit, chart
from quorate.broker.console.pages.configs_page import entity_panel
from quorate.broker.console.pages.formats import number, size
from quorate.broker.console.pages.markup import Html, h, url
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
    action_form,
    field,
    ids,
    number_input,
    pager,
    panel,
    pill,
    select,
    table,
    tabs,
    text_input,
    tile,
    tiles,
    unfolding,
)
from quorate.broker.console.pages.records_page import records_sections
from quorate.broker.console.pages.replicas_page import replica_sections
from quorate.broker.console.views.replica_plan import by_broker
from quorate.broker.console.views.series import Line, total_now
from quorate.common.acl_types import AclOperation
from quorate.common.types import NO_BROKER, TopicPartition
from quorate.metadata_log.partitions import Partition, Topic

_LIVE_EVERY_S: Final = {"partitions": SLOWLY_LIVE_EVERY_S, "replicas": LIVE_EVERY_S}
FIGURES: Final = ("bytes_in", "bytes_out", "records_in")


async def topic_page(parts: ConsoleParts, request: PageRequest) -> Page:
    name, *rest = request.path
    topic = parts.image.topics.get(name)
    rights = parts.rights(request.person)
    if topic is None or not rights.may_topic(AclOperation.DESCRIBE, name, log_denied=False):
        raise PageNotFound(f"there is no topic {name}, or you may not describe it")
    view = rest[0] if rest else "partitions"
    health = (await parts.health.topics()).get(name, TopicHealth())
    if view == "records":
        sections = await records_sections(parts, request, topic)
    elif view == "configs":
        sections = [Section("configs", await entity_panel(parts, request, "topic", name))]
    elif view == "replicas":
        sections = await replica_sections(parts, request, topic)
    elif view == "partitions":
        sections = await _partition_sections(parts, request, topic, health)
    else:
        raise PageNotFound(f"a topic has no page {view}")
    return Page(
        name,
        "topics",
        (Section("tabs", _tabs(name, view)), *sections),
        trail=(("Topics", url("topics")),),
        live_every_s=_LIVE_EVERY_S.get(view, 0.0),
    )


def _tabs(name: str, current: str) -> Html:
    views = (
        ("Partitions", ""),
        ("Records", "records"),
        ("Replicas", "replicas"),
        ("Configs", "configs"),
    )
    links = [(title, url("topics", name, *filter(None, [path]))) for title, path in views]
    return tabs(links, current.capitalize())


async def _partition_sections(
    parts: ConsoleParts, request: PageRequest, topic: Topic, health: TopicHealth
) -> list[Section]:
    name = topic.name
    show = request.asked("show")
    numbers = _numbers(topic, show)
    pages = max(1, -(-len(numbers) // PAGE_ROWS))
    page = request.asked_number("page", 1, 1, pages)
    shown = numbers[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    partitions = [TopicPartition(name, one) for one in shown]
    figures = await parts.figures.read(request.person, [topic_series(one, name) for one in FIGURES])
    starts, _ = await list_offsets(parts.requests, request.person, partitions, EARLIEST)
    ends, _ = await list_offsets(parts.requests, request.person, partitions, LATEST)
    sizes = await _sizes(parts, request.person, topic, shown)
    rows = [
        _row(topic, one, starts.get(tp), ends.get(tp), sizes.get(one))
        for one, tp in zip(shown, partitions, strict=True)
    ]
    listed = table(_COLUMNS, rows, "No partition is like that.")
    path, query = ("topics", name), {"show": show}
    choice = h(
        "span",
        h("a", "all", href=url(*path), aria_current="true" if not show else None),
        h(
            "a",
            "in trouble",
            href=url(*path, show="trouble"),
            aria_current="true" if show else None,
        ),
        class_="choice",
    )
    partitions_panel = panel(
        "Partitions", listed, pager(path, query, page, len(numbers), "partition"), aside=choice
    )
    return [
        Section("tiles", _tiles(topic, health, figures), live=True),
        Section("charts", _charts(name, figures), live=True),
        Section("partitions", partitions_panel, live=True),
        Section("change", _changes(request, topic)),
    ]


def _numbers(topic: Topic, show: str) -> Sequence[int]:
    if show != "trouble":
        return range(len(topic.partitions))
    return [
        number
        for number, one in enumerate(topic.partitions)
        if one.offline or len(one.isr) < len(one.replicas)
    ]


_COLUMNS: Final = (
    Column("Partition"),
    Column("Leader"),
    Column("In sync"),
    Column("Replicas"),
    Column("Epoch", numeric=True),
    Column("Start", numeric=True),
    Column("End", numeric=True),
    Column("Records", numeric=True),
    Column("Size", numeric=True),
    Column(""),
)


def _row(
    topic: Topic, number_: int, start: int | None, end: int | None, size_: int | None
) -> list[Html | str]:
    partition = topic.partitions[number_]
    records = end - start if start is not None and end is not None else None
    return [
        number(number_),
        _leader(partition),
        ids(partition.isr),
        ids(partition.replicas, frozenset(partition.replicas) - frozenset(partition.isr)),
        number(partition.leader_epoch),
        number(start),
        number(end),
        number(records),
        size(size_),
        h("a", "records", href=url("topics", topic.name, "records", partition=number_)),
    ]


def _leader(partition: Partition) -> Html:
    if partition.leader == NO_BROKER:
        return pill("offline", "critical")
    link = h("a", f"{partition.leader}", href=url("brokers", str(partition.leader)))
    if partition.leader == partition.replicas[0]:
        return link
    return Html(link + h("span", " not preferred", class_="muted"))


async def _sizes(
    parts: ConsoleParts, person: Person, topic: Topic, numbers: Sequence[int]
) -> Mapping[int, int]:
    """Return the size of the leader's log of each partition, as far as the person may see it."""
    if not parts.rights(person).may_cluster(AclOperation.DESCRIBE, log_denied=False):
        return {}
    led = by_broker((topic.partitions[one].leader, one) for one in numbers)
    led.pop(NO_BROKER, None)
    sizes = await replica_sizes(parts.requests, person, topic.name, led)
    return {number: size for (_, number), size in sizes.items()}


def _tiles(topic: Topic, health: TopicHealth, figures: Figures) -> Html:
    def now(figure: str) -> float | None:
        return total_now(figures.of(topic_series(figure, topic.name)))

    trouble = "critical" if health.offline_count else "serious" if not health.is_sound else ""
    return tiles(
        tile(
            "Partitions",
            number(health.partitions),
            f"replication factor {health.replication_factor}",
        ),
        tile(
            "Under-replicated",
            number(health.under_replicated_count),
            f"{number(health.offline_count)} offline",
            trouble,
        ),
        tile(
            "Written",
            BYTES_PER_S.format(now("bytes_in")),
            f"{COUNT.format(now('records_in'))} records/s",
        ),
        tile("Read", BYTES_PER_S.format(now("bytes_out")), "by clients"),
        tile("Topic id", h("code", _kafka_id(topic.topic_id)), "names it for ever"),
    )


def _kafka_id(topic_id: bytes) -> str:
    """Return a topic id as Kafka's tools print it: base64 without padding."""
    import base64

    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _charts(name: str, figures: Figures) -> Html:
    def one(title: str, figure: str, unit: Unit) -> Html:
        lines = [
            Line(f"broker {broker}", values)
            for broker, values in figures.of(topic_series(figure, name)).items()
        ]
        return chart(title, lines, unit, figures.last_at_ms, figures.interval_ms)

    return h(
        "div",
        one("Written", "bytes_in", BYTES_PER_S),
        one("Read", "bytes_out", BYTES_PER_S),
        one("Records written per second", "records_in", COUNT),
        class_="charts",
    )


def _changes(request: PageRequest, topic: Topic) -> Html:
    name, token = topic.name, request.token
    if name in INTERNAL_TOPICS:
        return Html("")
    here = {"topic": name, "back": url("topics", name)}
    grow = action_form(
        "add-partitions",
        token,
        field(
            "Partitions in all",
            number_input("count", len(topic.partitions) + 1, min=len(topic.partitions) + 1),
        ),
        label="Add",
        hidden=here,
    )
    elect = action_form(
        "elect-leaders",
        token,
        field(
            "Election", select("election", (("0", "preferred"), ("1", "unclean: may lose records")))
        ),
        field("Partition", number_input("partition", "", min=0, placeholder="all")),
        label="Elect",
        hidden=here,
    )
    delete = action_form(
        "delete-topic",
        token,
        field(
            "Type the name of the topic", text_input("confirmed", required=True, placeholder=name)
        ),
        label="Delete for ever",
        hidden={"topic": name, "back": url("topics")},
        danger=True,
    )
    return h(
        "div",
        unfolding("Add partitions", grow),
        unfolding("Elect leaders", elect),
        unfolding("Delete the topic", delete),
        class_="changes",
    )
