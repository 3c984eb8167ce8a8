"""Configurations: what is in force, what overrides what, and forms that change it."""

from typing import Final

from quorate.broker.common.errors import error_name
from quorate.broker.console.asking.console_apis import DESCRIBE_CONFIGS
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.markup import NOTHING, Html, h, url
from quorate.broker.console.pages.page import Page, PageRequest, Section
from quorate.broker.console.pages.parts import (
    Column,
    action_form,
    field,
    note,
    panel,
    pill,
    query_form,
    select,
    table,
    text_input,
    unfolding,
)
from quorate.broker.console.views.config_view import ConfigRow, Layer, config_rows
from quorate.broker.kafka.wire.codec import Message

RESOURCES: Final = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}
"""Kafka's numbers of the resource types, by the names that people use."""

OWN_SOURCE: Final = {"topic": 1, "broker": 2, "client-metrics": 7, "group": 8}
"""The source of the values that are set for exactly this entity."""

ALL_BROKERS_SOURCE: Final = 3

_KINDS: Final = (
    ("broker", "broker (empty name: all brokers)"),
    ("topic", "topic"),
    ("group", "group"),
    ("client-metrics", "client metrics"),
)


def describe_request(resource_type: int, name: str) -> Message:
    """Return the request for all keys of one entity, with what they override."""
    return {
        "resources": [
            {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
        ],
        "include_synonyms": True,
        "include_documentation": True,
    }


async def configs_page(parts: ConsoleParts, request: PageRequest) -> Page:
    kind = request.asked("kind", "broker")
    kind = kind if kind in RESOURCES else "broker"
    name = request.asked("name")
    form = query_form(
        ("configs",),
        field("Kind", select("kind", _KINDS, kind)),
        field(
            "Name", text_input("name", name, placeholder="all brokers" if kind == "broker" else "")
        ),
    )
    sections = [Section("choice", panel("Whose configuration", form))]
    if name or kind == "broker":
        sections.append(Section("configs", await entity_panel(parts, request, kind, name)))
    return Page("Configs", "configs", tuple(sections))


async def entity_panel(parts: ConsoleParts, request: PageRequest, kind: str, name: str) -> Html:
    """Return the configuration of an entity as a panel with its forms."""
    owner = None
    if kind == "broker" and name.isascii() and name.isdecimal() and len(name) < 10:
        owner = next((one for one in parts.requests.live_brokers if one == int(name)), None)
    try:
        body = describe_request(RESOURCES[kind], name)
        answer = await parts.requests.ask(request.person, DESCRIBE_CONFIGS, body, owner)
    except AskFailed as error:
        return panel("Configuration", note(str(error), kind="serious"))
    return config_panel(answer["results"][0], request, kind, name)


def config_panel(result: Message, request: PageRequest, kind: str, name: str) -> Html:
    """Return the keys of one entity, and the form that changes them."""
    if result["error_code"]:
        reason = result["error_message"] or error_name(result["error_code"])
        return panel("Configuration", note(reason, kind="serious"))
    own = ALL_BROKERS_SOURCE if kind == "broker" and not name else OWN_SOURCE[kind]
    rows = config_rows(result["configs"], own)
    changed = [one for one in rows if not one.is_default]
    columns = (
        Column("Key", wide=True),
        Column("Value"),
        Column("From"),
        Column("Overrides"),
    )
    others = len(rows) - len(changed)
    return panel(
        "Configuration",
        table(columns, map(_row, changed), "Every key has its default value."),
        unfolding(
            f"{others} keys at their defaults",
            table(columns, map(_row, (one for one in rows if one.is_default))),
        ),
        unfolding("Change a key", change_form(rows, request, kind, name)),
    )


def _row(row: ConfigRow) -> list[Html | str]:
    overridden = [
        h("li", h("span", one.source, class_="muted"), " ", h("code", _layer(row.name, one)))
        for one in row.overrides
    ]
    return [
        h("span", h("b", row.name), h("span", row.doc, class_="doc")),
        h("code", row.value or "(empty)"),
        pill(row.source, "" if row.is_default else "note"),
        h("ul", overridden, class_="plain") if overridden else NOTHING,
    ]


def _layer(name: str, layer: Layer) -> str:
    value = layer.value or "(empty)"
    return value if layer.name == name else f"{layer.name}={value}"


def change_form(rows: list[ConfigRow], request: PageRequest, kind: str, name: str) -> Html:
    """Return the form that sets a key, or takes it away."""
    keys = [(one.name, one.name) for one in sorted(rows) if not one.read_only]
    return action_form(
        "alter-config",
        request.token,
        field("Key", select("key", keys)),
        field("Value", text_input("value")),
        field(
            "Do",
            select("operation", (("set", "set the value"), ("delete", "take the value away"))),
        ),
        label="Change",
        hidden={"kind": kind, "name": name, "back": back_to(kind, name)},
    )


def back_to(kind: str, name: str) -> str:
    """Return the page on which the configuration of an entity is shown."""
    if kind == "topic":
        return url("topics", name, "configs")
    if kind == "broker" and name:
        return url("brokers", name)
    return url("configs", kind=kind, name=name)
