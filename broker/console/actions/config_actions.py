"""Changing one key of a configuration."""

from typing import Final

from quorate.broker.console.actions.action import outcome
from quorate.broker.console.actions.form import BadForm, Form, Outcome
from quorate.broker.console.asking.console_apis import INCREMENTAL_ALTER_CONFIGS
from quorate.broker.console.asking.person import Person
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.configs_page import RESOURCES

_OPERATIONS: Final = {"set": 0, "delete": 1}
"""Kafka's numbers of what is done to a key."""


async def alter_config(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    kind, key, operation = form.text("kind"), form.text("key"), form.text("operation")
    if kind not in RESOURCES or operation not in _OPERATIONS:
        raise BadForm(f"{operation} of {kind} is nothing that can be done")
    name = form.text("name", "")
    resource = {
        "resource_type": RESOURCES[kind],
        "resource_name": name,
        "configs": [
            {
                "name": key,
                "config_operation": _OPERATIONS[operation],
                "value": form.raw("value") if operation == "set" else None,
            }
        ],
    }
    body = {"resources": [resource], "validate_only": False}
    answer = await parts.requests.ask(person, INCREMENTAL_ALTER_CONFIGS, body)
    done = (
        f"{key} is {form.raw('value')}" if operation == "set" else f"{key} is not set here any more"
    )
    return [
        outcome(f"{kind} {name}".strip(), done, one["error_code"], one["error_message"])
        for one in answer["responses"]
    ]
