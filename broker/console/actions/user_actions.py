"""Users who log in by SCRAM: adding them, changing their passwords and deleting them.

A password is hashed in this process. The request that goes on has a salted hash, as that of any
Kafka client (KIP-554), and no answer, log or audit entry has either.
"""

import asyncio
from typing import Final

from quorate.broker.console.actions.action import outcome
from quorate.broker.console.actions.form import BadForm, Form, Outcome
from quorate.broker.console.asking.console_apis import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.asking.person import Person
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.security.scram import BY_NUMBER, MECHANISMS, ScramMechanism, salted_password
from quorate.metadata_log.rules.administration import LEAST_ITERATIONS, MOST_ITERATIONS
from quorate_proto.v1 import errors_pb2

PASSWORD_CHARACTERS_MAX: Final = 1_024
ITERATIONS: Final = 8_192
_SALT_BYTES: Final = 24


async def create_user(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    user, password = form.text("user"), _password(form)
    chosen = _mechanisms(form)
    if await _known(parts, person, user):
        raise BadForm(f"there is a user {user} already: change the password instead")
    iterations = form.number("iterations", LEAST_ITERATIONS, MOST_ITERATIONS)
    credentials = [await _credential(parts, user, one, password, iterations) for one in chosen]
    return await _alter(parts, person, {"upsertions": credentials}, "added")


async def change_password(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    """Set a password for all mechanisms that the user has."""
    user, password = form.exact("user"), _password(form)
    known = await _require_known(parts, person, user)
    credentials = [
        await _credential(parts, user, BY_NUMBER[one["mechanism"]], password, one["iterations"])
        for one in known
    ]
    return await _alter(parts, person, {"upsertions": credentials}, "has a new password")


async def delete_user(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    user = form.exact("user")
    form.require_confirmed(user)
    known = await _require_known(parts, person, user)
    deletions = [{"name": user, "mechanism": one["mechanism"]} for one in known]
    return await _alter(parts, person, {"deletions": deletions}, "deleted")


def _password(form: Form) -> str:
    password = form.raw("password")
    if not password:
        raise BadForm("the password is missing")
    if len(password) > PASSWORD_CHARACTERS_MAX:
        raise BadForm(f"the password has more than {PASSWORD_CHARACTERS_MAX} characters")
    if password != form.raw("again"):
        raise BadForm("the two passwords differ: type the same one twice")
    return password


def _mechanisms(form: Form) -> list[ScramMechanism]:
    name = form.text("mechanism", "")
    if name and name not in MECHANISMS:
        raise BadForm(f"{name}: the mechanisms are {', '.join(MECHANISMS)}")
    return [MECHANISMS[name]] if name else list(MECHANISMS.values())


async def _known(parts: ConsoleParts, person: Person, user: str) -> list[Message]:
    """Return the mechanisms of a user, with their iterations; none if there is no such user.

    Raises:
        AskFailed: the person may not know.
    """
    body = {"users": [{"name": user}]}
    answer = await parts.requests.ask(person, DESCRIBE_USER_SCRAM_CREDENTIALS, body)
    failed = next((one for one in (answer, *answer["results"]) if one["error_code"]), None)
    if failed is None:
        return [info for one in answer["results"] for info in one["credential_infos"]]
    if failed["error_code"] == errors_pb2.RESOURCE_NOT_FOUND:
        return []
    refused = outcome("", "", failed["error_code"], failed["error_message"])
    raise AskFailed(refused.error)


async def _require_known(parts: ConsoleParts, person: Person, user: str) -> list[Message]:
    known = await _known(parts, person, user)
    if not known:
        raise BadForm(f"there is no user {user}")
    return known


async def _credential(
    parts: ConsoleParts, user: str, mechanism: ScramMechanism, password: str, iterations: int
) -> Message:
    salt = parts.random_bytes(_SALT_BYTES)
    salted = await asyncio.to_thread(salted_password, mechanism, password, salt, iterations)
    return {
        "name": user,
        "mechanism": mechanism.number,
        "iterations": iterations,
        "salt": salt,
        "salted_password": salted,
    }


async def _alter(
    parts: ConsoleParts, person: Person, changes: dict[str, list[Message]], done: str
) -> list[Outcome]:
    body = {"deletions": [], "upsertions": [], **changes}
    answer = await parts.requests.ask(person, ALTER_USER_SCRAM_CREDENTIALS, body)
    return [
        outcome(f"user {one['user']}", done, one["error_code"], one["error_message"])
        for one in answer["results"]
    ]
