"""The first page: what is wrong, how busy the cluster is, and its brokers, topics and groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quorate.broker.config.internal_topics import INTERNAL_TOPICS
from quorate.broker.console.asking.cluster_figures import Figures
from quorate.broker.console.asking.console_apis import DESCRIBE_QUORUM
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.asking.person import Person
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.figures.figure_history import about
from quorate.broker.console.health.topic_health import BrokerShare, ClusterHealth, summed
from quorate.broker.console.pages.charts import (
    BYTES_PER_S,
    COUNT,
    MILLISECONDS,
    PERCENT,
    Unit,
    chart,
    spark,
)
from quorate.broker.console.pages.formats import (
    count,
    milliseconds,
    number,
    rate,
    short_number,
)
from quorate.broker.console.pages.markup import NOTHING, Child, Html, h, url
from quorate.broker.console.pages.page import LIVE_EVERY_S, Page, PageRequest, Section
from quorate.broker.console.pages.parts import Column, meter, panel, pill, table, tile, tiles
from quorate.broker.console.views.quorum_view import quorum_health
from quorate.broker.console.views.series import Line, added, is_growing, last, total_now
from quorate.broker.console.views.troubles import (
    Disk,
    QuorumHealth,
    Severity,
    Signs,
    Trouble,
    troubles,
)
from quorate.broker.kafka.metadata.describe_quorum_api import METADATA_TOPIC
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation
from quorate.common.types import NO_BROKER, BrokerId
from quorate.metadata_log.image import Image

SERIES: Final = (
    "bytes_in",
    "bytes_out",
    "records_in",
    "produce_p99_ms",
    "cpu",
    "connections",
    "disk_used",
    "disk_total",
    "under_replicated",
    "offline",
)
LARGEST: Final = ("lag group", "bytes_in topic")
LAG_WORTH_A_WORD: Final = 1_000
ROWS_MAX: Final = 8

QUORUM_REQUEST: Final[Message] = {
    "topics": [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the first page shows."""

    health: ClusterHealth
    brokers: Mapping[BrokerId, BrokerShare]
    live: frozenset[BrokerId]
    controller: BrokerId | None
    racks: Mapping[BrokerId, str]
    disks: Mapping[BrokerId, Disk]
    figures: Figures
    troubles: Sequence[Trouble]


async def overview_page(parts: ConsoleParts, request: PageRequest) -> Page:
    view = await gather_overview(parts, request.person)
    return Page(
        "Overview",
        "",
        (
            Section("troubles", _troubles(view.troubles), live=True),
            Section("tiles", _tiles(view), live=True),
            Section("charts", traffic_charts(view.figures), live=True),
            Section("tables", _tables(view), live=True),
        ),
        live_every_s=LIVE_EVERY_S,
    )


def _tables(view: Overview) -> Html:
    left = h("div", _brokers(view), _groups(view.figures), class_="column")
    return h("div", left, _busiest(view.figures), class_="columns")


async def gather_overview(parts: ConsoleParts, person: Person) -> Overview:
    """Ask for everything that the first page shows."""
    figures = await parts.figures.read(person, SERIES, LARGEST)
    quorum = await ask_quorum_health(parts, person)
    topics = await parts.visible_topics(person)
    shares = await parts.health.shares(None if not parts.authorizer.enabled else topics)
    image = parts.image
    health = summed(topics.values())
    disks = disks_of(figures)
    controller = None if image.controller_id == NO_BROKER else image.controller_id
    signs = Signs(
        health=health,
        offline_topics=sorted(name for name, one in topics.items() if one.offline_count),
        under_replicated_topics=sorted(
            name for name, one in topics.items() if one.under_replicated_count
        ),
        controller=controller,
        away={one: share.replicas for one, share in shares.items() if one not in image.brokers},
        not_admitted=sorted(one for one, broker in image.brokers.items() if not broker.admitted),
        quorum=quorum,
        disks=disks,
        growing_groups=_growing(figures),
        alerts=figures.alerts,
        silent=figures.silent
        if parts.rights(person).may_cluster(AclOperation.DESCRIBE, log_denied=False)
        else {},
    )
    return Overview(
        health=health,
        brokers={one: shares.get(one, BrokerShare()) for one in {*image.brokers, *shares}},
        live=frozenset(image.brokers),
        controller=controller,
        racks=racks_of(image),
        disks=disks,
        figures=figures,
        troubles=troubles(signs),
    )


async def ask_quorum_health(parts: ConsoleParts, person: Person) -> QuorumHealth:
    """Return the health of the quorum, as far as the person may see it."""
    if not parts.rights(person).may_cluster(AclOperation.DESCRIBE, log_denied=False):
        return QuorumHealth(is_hidden=True)
    try:
        answer = await parts.requests.ask(person, DESCRIBE_QUORUM, QUORUM_REQUEST)
    except AskFailed as error:
        return QuorumHealth(problem=str(error))
    return quorum_health(answer, parts.wall_clock_ms())


def disks_of(figures: Figures) -> dict[BrokerId, Disk]:
    """Return the disk of each broker that told of it."""
    totals = figures.of("disk_total")
    disks: dict[BrokerId, Disk] = {}
    for broker, used in figures.of("disk_used").items():
        now, total = last(used), last(totals.get(broker, ()))
        if now is not None and total is not None:
            disks[broker] = Disk(now, total)
    return disks


def racks_of(image: Image) -> dict[BrokerId, str]:
    return {one: broker.registration.rack for one, broker in image.brokers.items()}


def _growing(figures: Figures) -> dict[str, float]:
    return {
        about(name)[2]: values[-1]
        for name in figures.names("lag group ")
        for values in figures.of(name).values()
        if is_growing(values, LAG_WORTH_A_WORD)
    }


# -- how it is shown -----------------------------------------------------------------------------

_KINDS: Final = {
    Severity.CRITICAL: "critical",
    Severity.SERIOUS: "serious",
    Severity.NOTE: "note",
}


def _troubles(found: Sequence[Trouble]) -> Html:
    worst = found[0].severity if found else Severity.NOTE
    if not any(one.severity < Severity.NOTE for one in found):
        sound = h(
            "div",
            h("i", class_="dot"),
            h("b", "All is well"),
            h("span", "Every partition has a leader and all its replicas.", class_="muted"),
            class_="banner ok",
        )
        return Html(sound + h("ul", map(_trouble, found), class_="troubles")) if found else sound
    serious = sum(one.severity < Severity.NOTE for one in found)
    banner = h(
        "div",
        h("i", class_="dot"),
        h("b", f"{count(serious, 'thing needs', 'things need')} attention"),
        class_=f"banner {_KINDS[worst]}",
        role="status",
    )
    return Html(banner + h("ul", map(_trouble, found), class_="troubles"))


def _trouble(one: Trouble) -> Html:
    inside = [
        h("i", class_="dot"),
        h("b", one.title),
        h("span", one.detail, class_="muted"),
        h("span", "→", class_="go") if one.path else NOTHING,
    ]
    kind = _KINDS[one.severity]
    if one.path:
        return h("li", h("a", inside, href=url(*one.path, **one.query)), class_=kind)
    return h("li", h("div", inside), class_=kind)


def _tiles(view: Overview) -> Html:
    health, figures = view.health, view.figures
    away = len(view.brokers) - len(view.live)
    slow = [value for one in figures.of("produce_p99_ms").values() if (value := last(one))]
    return tiles(
        tile(
            "Brokers",
            f"{len(view.live)}",
            f"{away} away" if away else "all up",
            "serious" if away else "",
            url("brokers"),
        ),
        tile(
            "Partitions",
            number(health.partitions),
            f"in {count(health.topics, 'topic')}",
            "",
            url("topics"),
        ),
        tile(
            "Under-replicated",
            number(health.under_replicated),
            f"{number(health.offline)} offline",
            "critical" if health.offline else "serious" if health.under_replicated else "",
            url("topics", show="trouble"),
        ),
        tile("Written", rate(total_now(figures.of("bytes_in"))), _records_per_s(figures)),
        tile("Read", rate(total_now(figures.of("bytes_out"))), "by clients"),
        tile("Produce p99", milliseconds(max(slow, default=None)), "slowest broker"),
        tile(
            "Controller",
            "none" if view.controller is None else f"broker {view.controller}",
            "moves leaders",
            "critical" if view.controller is None else "",
            url("quorum"),
        ),
    )


def _records_per_s(figures: Figures) -> str:
    return f"{short_number(total_now(figures.of('records_in')))} records/s"


def traffic_charts(figures: Figures) -> Html:
    """Return the charts of the cluster's traffic, one line per broker."""

    def by_broker(title: str, name: str, unit: Unit) -> Html:
        lines = [Line(f"broker {one}", values) for one, values in figures.of(name).items()]
        return chart(title, lines, unit, figures.last_at_ms, figures.interval_ms)

    trouble = [*figures.of("under_replicated").values()][:1]
    return h(
        "div",
        by_broker("Written", "bytes_in", BYTES_PER_S),
        by_broker("Read", "bytes_out", BYTES_PER_S),
        by_broker("Produce p99", "produce_p99_ms", MILLISECONDS),
        chart(
            "Under-replicated",
            [Line("cluster", one) for one in trouble],
            COUNT,
            figures.last_at_ms,
            figures.interval_ms,
        ),
        class_="charts",
    )


def _brokers(view: Overview) -> Html:
    cpu = view.figures.of("cpu")
    rows = [_broker_row(view, one, cpu.get(one, ())) for one in sorted(view.brokers)[:ROWS_MAX]]
    columns = (
        Column("Broker"),
        Column("Leads", numeric=True),
        Column("Replicas", numeric=True),
        Column("CPU", numeric=True),
        Column("Disk"),
    )
    return panel("Brokers", table(columns, rows), aside=h("a", "All brokers", href=url("brokers")))


def _broker_row(view: Overview, one: BrokerId, cpu: Sequence[float]) -> list[Child]:
    share, disk = view.brokers[one], view.disks.get(one)
    state = NOTHING if one in view.live else pill("away", "serious")
    office = pill("controller", "note") if one == view.controller else NOTHING
    out = pill(f"{share.out_of_sync} out of sync", "serious") if share.out_of_sync else NOTHING
    return [
        [h("a", f"{one}", href=url("brokers", str(one))), " ", state, office, out],
        number(share.leaders),
        number(share.replicas),
        PERCENT.format(last(cpu)),
        meter(disk.share, f"{disk.share:.0%}") if disk else "—",
    ]


def _busiest(figures: Figures) -> Html:
    rates = {
        about(name)[2]: total_now(figures.of(name)) or 0.0
        for name in figures.names("bytes_in topic ")
    }
    busiest = sorted(rates.items(), key=lambda one: (-one[1], one[0]))
    rows = [
        [
            h("a", name, href=url("topics", name)),
            rate(value),
            _spark(figures, f"bytes_in topic {name}"),
        ]
        for name, value in busiest[:ROWS_MAX]
        if value and name not in INTERNAL_TOPICS
    ]
    columns = (Column("Topic", wide=True), Column("Written", numeric=True), Column("Last hour"))
    return panel("Busiest topics", table(columns, rows, "Nobody writes at the moment."))


def _groups(figures: Figures) -> Html:
    lags = {
        about(name)[2]: total_now(figures.of(name)) or 0.0 for name in figures.names("lag group ")
    }
    behind = sorted(lags.items(), key=lambda one: (-one[1], one[0]))
    rows = [
        [
            h("a", name, href=url("groups", name)),
            short_number(lag),
            _spark(figures, f"lag group {name}"),
        ]
        for name, lag in behind[:ROWS_MAX]
        if lag
    ]
    columns = (Column("Group", wide=True), Column("Lag", numeric=True), Column("Last hour"))
    return panel(
        "Groups furthest behind",
        table(columns, rows, "No group is behind."),
        aside=h("a", "All groups", href=url("groups")),
    )


def _spark(figures: Figures, name: str) -> Html:
    return spark(added(list(figures.of(name).values())))
