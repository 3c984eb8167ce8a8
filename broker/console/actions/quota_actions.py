"""Setting and removing a quota of a user, a client id, both, or an address."""

from typing import Final

from quorate.broker.console.actions.action import outcome
from quorate.broker.console.actions.form import BadForm, Form, Outcome
from quorate.broker.console.asking.console_apis import ALTER_CLIENT_QUOTAS
from quorate.broker.console.asking.person import Person
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.views.quota_view import ENTITY_FIELDS, named_entity
from quorate.broker.kafka.wire.codec import Message

_NOT_USED: Final = 0.0
"""The value of a quota that is removed, which the controller does not look at."""


async def set_quota(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    key, value = form.text("key"), form.positive("value")
    change = {"key": key, "value": value, "remove": False}
    return await _alter(parts, person, _entity(form), change, f"{key} is {value:.15g}")


async def remove_quota(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    key = form.text("key")
    change = {"key": key, "value": _NOT_USED, "remove": True}
    return await _alter(
        parts, person, _entity(form, exact=True), change, f"{key} is not set here any more"
    )


def _entity(form: Form, *, exact: bool = False) -> list[Message]:
    """Return for whom the quota is. A ticked box means the default: all that have no own quota.

    The name of one that is there already is ``exact``: it may have blanks around it.

    Raises:
        BadForm: nobody is named, or somebody and the default.
    """
    entity: list[Message] = []
    for kind, name in ENTITY_FIELDS.items():
        given, is_default = form.text(name, ""), form.is_on(f"default_{name}")
        if given and exact:
            given = form.exact(name)
        if given and is_default:
            raise BadForm(f"{kind} {given!r}: give a name or choose the default, not both")
        if given or is_default:
            entity.append({"entity_type": kind, "entity_name": given or None})
    if not entity:
        raise BadForm("a quota is for a user, a client id, both, or an address: name one")
    return entity


async def _alter(
    parts: ConsoleParts, person: Person, entity: list[Message], change: Message, done: str
) -> list[Outcome]:
    body = {"entries": [{"entity": entity, "ops": [change]}], "validate_only": False}
    answer = await parts.requests.ask(person, ALTER_CLIENT_QUOTAS, body)
    return [
        outcome(named_entity(entity), done, one["error_code"], one["error_message"])
        for one in answer["entries"]
    ]
