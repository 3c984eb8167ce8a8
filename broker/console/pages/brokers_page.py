"""The pages of brokers: all of them, and one."""

from collections.abc import Mapping, Sequence
from typing import Final

from quorate.broker.common.errors import error_name
from quorate.broker.console.asking.cluster_figures import Figures
from quorate.broker.console.asking.console_apis import DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.health.topic_health import BrokerShare
from quorate.broker.console.pages.charts import (
    BYTES_PER_S,
    COUNT,
    MILLISECONDS,
    PERCENT,
    Unit,
    chart,
)
from quorate.broker.console.pages.configs_page import config_panel, describe_request
from quorate.broker.console.pages.formats import number, rate, size
from quorate.broker.console.pages.markup import NOTHING, Html, h, url
from quorate.broker.console.pages.overview_page import SERIES, disks_of
from quorate.broker.console.pages.page import (
    LIVE_EVERY_S,
    Page,
    PageNotFound,
    PageRequest,
    Section,
)
from quorate.broker.console.pages.parts import Column, facts, meter, note, panel, pill, table
from quorate.broker.console.views.series import Line, last
from quorate.common.types import BrokerId
from quorate.metadata_log.image import Image

BROKER_RESOURCE: Final = 4
"""Kafka's number of the resource type BROKER."""

_COLUMNS: Final = (
    Column("Broker"),
    Column("State"),
    Column("Rack"),
    Column("Kafka"),
    Column("Leads", numeric=True),
    Column("Replicas", numeric=True),
    Column("Out of sync", numeric=True),
    Column("Written", numeric=True),
    Column("Read", numeric=True),
    Column("Connections", numeric=True),
    Column("CPU", numeric=True),
    Column("Disk"),
)


async def brokers_page(parts: ConsoleParts, request: PageRequest) -> Page:
    if request.path:
        return await _broker_page(parts, request)
    figures = await parts.figures.read(request.person, SERIES)
    topics = await parts.visible_topics(request.person)
    shares = await parts.health.shares(topics)
    listed = panel("Brokers", table(_COLUMNS, _rows(parts.image, shares, figures)))
    return Page(
        "Brokers", "brokers", (Section("brokers", listed, live=True),), live_every_s=LIVE_EVERY_S
    )


def _rows(
    image: Image, shares: Mapping[BrokerId, BrokerShare], figures: Figures
) -> list[list[Html | str]]:
    disks = disks_of(figures)
    now = {name: {one: last(of) for one, of in figures.of(name).items()} for name in SERIES}
    rows = []
    for one in sorted({*image.brokers, *shares}):
        share, broker, disk = shares.get(one, BrokerShare()), image.brokers.get(one), disks.get(one)
        rows.append(
            [
                h("a", f"broker {one}", href=url("brokers", str(one))),
                state_of(image, one),
                broker.registration.rack if broker else "",
                str(broker.kafka) if broker else "",
                number(share.leaders),
                number(share.replicas),
                pill(number(share.out_of_sync), "serious") if share.out_of_sync else "0",
                rate(now["bytes_in"].get(one)),
                rate(now["bytes_out"].get(one)),
                number(now["connections"].get(one)),
                PERCENT.format(now["cpu"].get(one)),
                meter(disk.share, f"{size(disk.used)} of {size(disk.total)}") if disk else "—",
            ]
        )
    return rows


def state_of(image: Image, broker_id: BrokerId) -> Html:
    """Return whether a broker is there, and whether it is the controller."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return pill("away", "serious")
    if not broker.admitted:
        return pill("fenced", "serious")
    office = pill("controller", "note") if image.controller_id == broker_id else NOTHING
    return Html(pill("up", "ok") + office)


async def _broker_page(parts: ConsoleParts, request: PageRequest) -> Page:
    given = request.path[0]
    broker_id = (
        BrokerId(int(given))
        if given.isascii() and given.isdecimal() and len(given) < 10
        else BrokerId(-1)
    )
    image = parts.image
    topics = await parts.visible_topics(request.person)
    share = (await parts.health.shares(topics)).get(broker_id)
    if broker_id not in image.brokers and share is None and broker_id not in image.histories:
        raise PageNotFound(f"there is no broker {given}")
    figures = await parts.figures.read(request.person, SERIES)
    sections = [
        Section("state", _about(image, broker_id, share or BrokerShare()), live=True),
        Section("charts", _charts(figures, broker_id), live=True),
    ]
    if broker_id in image.brokers:
        sections.append(Section("folder", await _log_folder(parts, request, broker_id)))
        sections.append(Section("configs", await _configs(parts, request, broker_id)))
    return Page(
        f"Broker {broker_id}",
        "brokers",
        tuple(sections),
        trail=(("Brokers", url("brokers")),),
        live_every_s=LIVE_EVERY_S,
    )


def _about(image: Image, broker_id: BrokerId, share: BrokerShare) -> Html:
    broker = image.brokers.get(broker_id)
    known: list[tuple[str, Html | str]] = [
        ("State", state_of(image, broker_id)),
        ("Leads", f"{number(share.leaders)} partitions"),
        ("Replicas", f"{number(share.replicas)}, {number(share.out_of_sync)} out of sync"),
    ]
    if broker is not None:
        registration = broker.registration
        named = ", ".join(f"{one.name} {one.endpoint}" for one in registration.listeners)
        known += [
            ("Listeners", named or f"PLAINTEXT {broker.kafka}"),
            ("gRPC", str(broker.grpc)),
            ("Between brokers", str(broker.inter_broker)),
            ("Rack", registration.rack or "none"),
            ("Broker epoch", number(broker.epoch)),
        ]
    else:
        history = image.histories.get(broker_id)
        if history is not None:
            known.append(("Last broker epoch", number(history.epoch)))
    return panel("State", facts(known))


def _charts(figures: Figures, broker_id: BrokerId) -> Html:
    def one(title: str, name: str, unit: Unit) -> Html:
        values: Sequence[float] = figures.of(name).get(broker_id, ())
        line = [Line(title, values)] if values else []
        return chart(title, line, unit, figures.last_at_ms, figures.interval_ms)

    if why := figures.silent.get(broker_id):
        return note(f"No figures: {why}")
    return h(
        "div",
        one("Written", "bytes_in", BYTES_PER_S),
        one("Read", "bytes_out", BYTES_PER_S),
        one("Produce p99", "produce_p99_ms", MILLISECONDS),
        one("CPU of a core", "cpu", PERCENT),
        one("Connections", "connections", COUNT),
        class_="charts",
    )


async def _log_folder(parts: ConsoleParts, request: PageRequest, broker_id: BrokerId) -> Html:
    """Return the log folder of a broker. Its partitions are shown with their topics."""
    try:
        answer = await parts.requests.ask(
            request.person, DESCRIBE_LOG_DIRS, {"topics": []}, broker_id
        )
    except AskFailed as error:
        return panel("Log folder", note(str(error)))
    if answer["error_code"]:
        return panel("Log folder", note(error_name(answer["error_code"])))
    shown = []
    for one in answer["results"]:
        total, free = one["total_bytes"], one["usable_bytes"]
        trouble = (
            pill(error_name(one["error_code"]), "critical")
            if one["error_code"]
            else pill("ok", "ok")
        )
        shown.append(
            facts(
                [
                    ("Folder", h("code", one["log_dir"])),
                    ("State", trouble),
                    (
                        "Disk",
                        meter(
                            (total - free) / total if total > 0 else 0,
                            f"{size(free)} free of {size(total)}",
                        ),
                    ),
                ]
            )
        )
    return panel("Log folder", shown)


async def _configs(parts: ConsoleParts, request: PageRequest, broker_id: BrokerId) -> Html:
    body = describe_request(BROKER_RESOURCE, str(broker_id))
    try:
        answer = await parts.requests.ask(request.person, DESCRIBE_CONFIGS, body, broker_id)
    except AskFailed as error:
        return panel("Configuration", note(str(error)))
    return config_panel(answer["results"][0], request, "broker", str(broker_id))
