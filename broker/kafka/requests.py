"""One request on its way through the listener, and one API's row in the dispatch table."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from broker.client_memory import AnswerLease, ResponseMemory
from broker.kafka import codec
from broker.kafka.cursor import Cursor
from broker.kafka.layouts import api_key_map
from broker.kafka.services import KafkaServices
from broker.quota.throttle import Throttle
from broker.security.principal import ANONYMOUS, KafkaPrincipal
from broker.security.sasl import SaslSession
from metadata_log.types import DEFAULT_LISTENER

Buffers: TypeAlias = list[bytes | memoryview]
"""An answer in pieces, written without joining them; empty: no answer is due (acks=0)."""


class CloseConnection(Exception):
    """A well-formed request after which the connection is closed: at once, or after ``answer``."""

    def __init__(self, reason: str, answer: bytes = b"") -> None:
        super().__init__(reason)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who asks, and in which version."""

    version: int
    client_id: str
    client_host: str
    principal: KafkaPrincipal = ANONYMOUS
    listener: str = DEFAULT_LISTENER
    """Name of the listener by which the client came: it is told the brokers' addresses there."""
    sasl: SaslSession | None = None
    """Of the connection, where its listener asks for SASL."""
    throttle: Throttle = field(default_factory=Throttle, compare=False)
    """Of this request: whoever finds a quota exceeded says it there."""
    lease: AnswerLease = field(default_factory=lambda: AnswerLease(ResponseMemory()), compare=False)
    """Of this request's answer: whoever reads records for it asks there for room."""


Handler: TypeAlias = Callable[[KafkaServices, RequestContext, Any], Coroutine[Any, Any, Buffers]]
"""Answers a decoded body with an encoded body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """An API that this broker serves: only these are advertised.

    ``decode`` None: by kio's layout. ``answer_bytes_max``: how large the answer to a decoded body
    may get, where that is worth counting. ``abandonable``: nobody needs the outcome once the client
    is gone. ``throttle_place``: where the answer's throttle_time_ms is, by version, if not at its
    beginning: see ``quota.throttle.tell``.
    """

    key: int
    min_version: int
    max_version: int
    handle: Handler
    decode: Callable[[int, Cursor], Any] | None = None
    first_flexible_version: int
    answer_bytes_max: Callable[[KafkaServices, Any], int] = lambda services, body: 0
    abandonable: bool = False
    throttle_place: Callable[[int], int | None] | None = None

    @property
    def name(self) -> str:
        return api_key_map[self.key]

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def place_of_throttle(self, version: int) -> int | None:
        """Where an answer says for how long its client is throttled; None: nowhere."""
        if self.throttle_place is not None:
            return self.throttle_place(version)
        return codec.throttle_place(self.name, version)

    def decode_body(self, version: int, cursor: Cursor) -> Any:  # noqa: ANN401 - its handler's type
        if self.decode is not None:
            return self.decode(version, cursor)
        return codec.decode_request(self.name, version, cursor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A decoded request, ready to run. ``cost_bytes``: memory it holds until it is answered.

    ``lease``: of its answer; whoever started it lets go of it in the end.
    ``bare``: a SASL token without a header, whose answer has none either.
    """

    api_name: str
    correlation_id: int
    cost_bytes: int
    abandonable: bool
    flexible_answer_header: bool
    run: Callable[[], Coroutine[Any, Any, Buffers]]
    bare: bool = False
    throttle: Throttle = field(default_factory=Throttle)
    lease: AnswerLease = field(default_factory=lambda: AnswerLease(ResponseMemory()))
