"""What an admin call is made of: questions to brokers, and what their answers mean.

A call is a generator that yields questions and is sent the answers. It knows no socket and no
event loop, so that the synchronous and the asynchronous client carry out the same one.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from google.protobuf.message import Message

R = TypeVar("R")

Service = Literal["admin", "range_read"]


@dataclass(frozen=True, slots=True)
class ToController:
    """Ask the controller; looked for again at NOT_CONTROLLER or silence, until the deadline (F2).

    ``rpc``: of the Admin service. ``request``: its ``context`` is filled in. The answer's own
    error code, if any, is raised as RequestFailed; ``what`` was wanted: "creating topics".
    """

    rpc: str
    request: Message
    what: str
    ends_tenure: bool = False
    """Somebody else is the controller afterwards."""


@dataclass(frozen=True, slots=True)
class ToAnyBroker:
    """Ask brokers, one after the other, until one answers; its error codes are the call's."""

    rpc: str
    request: Message
    service: Service = "admin"


@dataclass(frozen=True, slots=True)
class ToEachBroker:
    """Ask these brokers at once. The answer: gRPC address → answer, None where there was none."""

    addresses: Sequence[str]
    rpc: str
    request: Message
    service: Service = "admin"


@dataclass(frozen=True, slots=True)
class Patience:
    """Wait so long, if the call's time allows it. The answer: whether it did."""

    time_ms: int


Request = ToController | ToAnyBroker | ToEachBroker

Question = Request | Patience

Steps = Generator[Question, Any, R]
"""An admin call that ends in an ``R``."""
