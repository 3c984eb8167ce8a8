"""What an action is: a form of a page that becomes a Kafka request of the person."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from quorate.broker.common.errors import error_name
from quorate.broker.console.actions.form import Form, Outcome
from quorate.broker.console.asking.person import Person
from quorate.broker.console.console_parts import ConsoleParts

CarryOut: TypeAlias = Callable[[ConsoleParts, Person, Form], Awaitable[list[Outcome]]]


class Action(NamedTuple):
    """One action.

    The controller audits the changes that it carries out. What other brokers carry out is in no
    audit log of Kafka's, so this broker writes it to its own if ``is_audited_here``.
    """

    name: str
    title: str
    carry_out: CarryOut
    is_audited_here: bool = False


def outcome(thing: str, done: str, code: int, message: str | None = None) -> Outcome:
    """Return the outcome that a response tells of one thing."""
    if not code:
        return Outcome(thing, done)
    name = error_name(code)
    return Outcome(thing, done, f"{name}: {message}" if message else name)
