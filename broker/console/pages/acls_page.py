"""Access control entries, and the forms that add and remove them."""

from typing import Final

from quorate.broker.common.errors import error_name
from quorate.broker.console.asking.console_apis import DESCRIBE_ACLS
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.markup import Html, h, url
from quorate.broker.console.pages.page import Page, PageRequest, Section
from quorate.broker.console.pages.parts import (
    Column,
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
    unfolding,
)
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation, AclPermission, PatternType, ResourceType

ANY: Final = 1
_COLUMNS: Final = (
    Column("Principal", wide=True),
    Column("May"),
    Column("Operation"),
    Column("On"),
    Column("Name"),
    Column("Host"),
    Column(""),
)


def acl_filter(principal: str | None = None) -> Message:
    """Return the filter that matches every entry, or those of one principal."""
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": principal,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }


async def acls_page(parts: ConsoleParts, request: PageRequest) -> Page:
    principal = request.asked("principal")
    content: list[Html]
    try:
        answer = await parts.requests.ask(
            request.person, DESCRIBE_ACLS, acl_filter(principal or None)
        )
        content = _entries(answer, request, principal)
    except AskFailed as error:
        content = [note(str(error), kind="serious")]
    choice = query_form(
        ("acls",), field("Principal", text_input("principal", principal, placeholder="User:alice"))
    )
    return Page(
        "ACLs",
        "acls",
        (
            Section("choice", choice),
            Section("acls", panel("Access control entries", *content)),
            Section("create", unfolding("Add an entry", _create_form(request))),
        ),
    )


def _entries(answer: Message, request: PageRequest, principal: str) -> list[Html]:
    if answer["error_code"]:
        reason = answer["error_message"] or error_name(answer["error_code"])
        return [note(reason, kind="serious")]
    entries = [(resource, entry) for resource in answer["resources"] for entry in resource["acls"]]
    entries.sort(key=lambda one: (one[1]["principal"], one[0]["resource_name"]))
    page, place = page_of(entries, request.asked("page", "1"))
    rows = [_row(resource, entry, request.token) for resource, entry in entries[place]]
    pages = pager(("acls",), {"principal": principal}, page, len(entries), "entry")
    return [table(_COLUMNS, rows, "There is no entry."), pages]


def _row(resource: Message, entry: Message, token: str) -> list[Html | str]:
    allows = entry["permission_type"] == AclPermission.ALLOW
    is_prefix = resource["pattern_type"] == PatternType.PREFIXED
    named = [resource["resource_name"], h("span", "…", class_="muted") if is_prefix else ""]
    fields = {
        "resource_type": str(resource["resource_type"]),
        "resource_name": resource["resource_name"],
        "pattern_type": str(resource["pattern_type"]),
        "principal": entry["principal"],
        "host": entry["host"],
        "operation": str(entry["operation"]),
        "permission": str(entry["permission_type"]),
        "back": url("acls"),
    }
    return [
        entry["principal"],
        pill("may", "ok") if allows else pill("must not", "serious"),
        _name(AclOperation, entry["operation"]),
        _name(ResourceType, resource["resource_type"]),
        h("code", named),
        entry["host"],
        action_form("delete-acl", token, label="Remove", hidden=fields, danger=True),
    ]


def _name(kind: "type[AclOperation] | type[ResourceType]", value: int) -> str:
    try:
        return kind(value).name.replace("_", " ").lower()
    except ValueError:
        return str(value)


def _create_form(request: PageRequest) -> Html:
    types = [
        (str(one.value), one.name.replace("_", " ").lower())
        for one in ResourceType
        if one.value > ANY
    ]
    operations = [
        (str(one.value), one.name.replace("_", " ").lower())
        for one in AclOperation
        if one.value > ANY
    ]
    patterns = [
        (str(one.value), one.name.lower()) for one in (PatternType.LITERAL, PatternType.PREFIXED)
    ]
    permissions = [
        (str(AclPermission.ALLOW.value), "may"),
        (str(AclPermission.DENY.value), "must not"),
    ]
    return action_form(
        "create-acl",
        request.token,
        field("Principal", text_input("principal", "User:", required=True)),
        field("Permission", select("permission", permissions)),
        field("Operation", select("operation", operations, "3")),
        field("Resource", select("resource_type", types)),
        field(
            "Name",
            text_input("resource_name", required=True),
            "* for all; kafka-cluster for the cluster",
        ),
        field("Pattern", select("pattern_type", patterns, "3")),
        field("Host", text_input("host", "*", required=True)),
        label="Add",
        hidden={"back": url("acls")},
    )
