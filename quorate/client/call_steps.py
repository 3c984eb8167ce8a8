"""The steps of an admin call: the questions that it asks brokers.

A call is a generator that yields questions and receives the answers. It has no socket and no event
loop, so the synchronous and the asynchronous client carry out the same call.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from google.protobuf.message import Message

R = TypeVar("R")

Service = Literal["admin", "range_read"]


@dataclass(frozen=True, slots=True)
class ToController:
    """Ask the controller. It is looked for again after NOT_CONTROLLER or silence, until the
    deadline (F2).

    ``rpc`` is a method of the Admin service. The ``context`` of ``request`` is filled in. An error
    code of the answer as a whole is raised as RequestFailed, whose message says ``what`` was
    wanted: "creating topics".
    """

    rpc: str
    request: Message
    what: str
    ends_tenure: bool = False
    """True if another broker is the controller after the call."""


@dataclass(frozen=True, slots=True)
class ToAnyBroker:
    """Ask brokers one after the other, until one answers; the call handles the error codes."""

    rpc: str
    request: Message
    service: Service = "admin"


@dataclass(frozen=True, slots=True)
class ToAllBrokers:
    """Ask these brokers at once. The result maps each gRPC address to its answer, or None."""

    addresses: Sequence[str]
    rpc: str
    request: Message
    service: Service = "admin"


@dataclass(frozen=True, slots=True)
class WaitBeforeRetry:
    """Wait, if the time of the call allows it. The result says whether the wait took place."""

    time_ms: int


Request = ToController | ToAnyBroker | ToAllBrokers

Question = Request | WaitBeforeRetry

Steps = Generator[Question, Any, R]
"""An admin call whose result is an ``R``."""
