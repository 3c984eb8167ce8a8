"""Adding and removing access control entries."""

from quorate.broker.console.actions.action import outcome
from quorate.broker.console.actions.form import Form, Outcome
from quorate.broker.console.asking.console_apis import CREATE_ACLS, DELETE_ACLS
from quorate.broker.console.asking.person import Person
from quorate.broker.console.console_parts import ConsoleParts


async def create_acl(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    principal = form.text("principal")
    entry = {
        "resource_type": form.number("resource_type", 0, 127),
        "resource_name": form.text("resource_name"),
        "resource_pattern_type": form.number("pattern_type", 0, 127),
        "principal": principal,
        "host": form.text("host", "*"),
        "operation": form.number("operation", 0, 127),
        "permission_type": form.number("permission", 0, 127),
    }
    answer = await parts.requests.ask(person, CREATE_ACLS, {"creations": [entry]})
    return [
        outcome(f"entry of {principal}", "added", one["error_code"], one["error_message"])
        for one in answer["results"]
    ]


async def delete_acl(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    """Remove exactly one entry: every field of the filter is given."""
    principal = form.exact("principal")
    entry = {
        "resource_type_filter": form.number("resource_type", 2, 127),
        "resource_name_filter": form.exact("resource_name"),
        "pattern_type_filter": form.number("pattern_type", 3, 4),
        "principal_filter": principal,
        "host_filter": form.exact("host"),
        "operation": form.number("operation", 2, 127),
        "permission_type": form.number("permission", 2, 127),
    }
    answer = await parts.requests.ask(person, DELETE_ACLS, {"filters": [entry]})
    found = answer["filter_results"][0]
    done = f"{len(found['matching_acls'])} removed"
    return [outcome(f"entry of {principal}", done, found["error_code"], found["error_message"])]
