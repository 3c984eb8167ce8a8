"""The types that a request has on its way through a connection, and one row of the API table."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from quorate.broker.common.steps import Steps
from quorate.broker.kafka.connection.request_task import Work
from quorate.broker.kafka.connection.request_work import RequestWork
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire import codec, stepwise
from quorate.broker.kafka.wire.kio_layouts import api_key_map
from quorate.broker.kafka.wire.primitives import Buffers, Cursor, at_once
from quorate.broker.quota.client_memory import ResponseLease, ResponseMemory
from quorate.broker.quota.client_quota_manager import FETCH_BYTES_UNLIMITED, QuotaTurn
from quorate.broker.security.listener_security import ListenerSecurity
from quorate.broker.security.principal import ANONYMOUS, KafkaPrincipal
from quorate.broker.security.sasl_session import SaslSession
from quorate.broker.telemetry.client_instances import ClientConnection
from quorate.common.types import DEFAULT_LISTENER
from quorate_proto.v1 import admin_pb2

_INT32_MAX: Final = 2**31 - 1
_NOT_FORWARDED: Final = -1


class CloseConnection(Exception):
    """A handler raises this to close the connection after a well-formed request.

    The connection is closed after ``response`` has been sent, or at once if that is empty.
    """

    def __init__(self, reason: str, response: bytes = b"") -> None:
        super().__init__(reason)
        self.response = response


@dataclass(slots=True)
class ClientSession:
    """The client of one connection: its address, its listener and its identity.

    ``sasl`` is None if the listener does not use SASL.
    """

    client_host: str
    listener: str = DEFAULT_LISTENER
    sasl: SaslSession | None = None
    certified: KafkaPrincipal = ANONYMOUS
    """The principal of the client's TLS certificate."""
    connection: ClientConnection = field(default_factory=ClientConnection)

    @classmethod
    def begin(
        cls,
        security: ListenerSecurity,
        client_host: str,
        certificate_der: bytes | None,
        client_port: int = 0,
    ) -> "ClientSession":
        """Return the session of a new connection.

        ``certificate_der`` was verified by TLS. It is None if the client sent no certificate.

        Raises:
            UnmappedCertificate: no user belongs to the certificate.
        """
        sasl = security.new_sasl_session()
        certified = ANONYMOUS
        if certificate_der and sasl is None:
            certified = security.principal_of_certificate(certificate_der)
        connection = ClientConnection(client_port)
        return cls(client_host, security.listener, sasl, certified, connection)

    @property
    def principal(self) -> KafkaPrincipal:
        return self.certified if self.sasl is None else self.sasl.principal

    @property
    def is_authenticated(self) -> bool:
        """True if the client may send other requests than those that authenticate it."""
        return self.sasl is None or self.sasl.authenticated


class RequestThrottle(msgspec.Struct, eq=False):
    """The time for which the client of one request is muted after the response.

    The response is sent first. Then nothing more is read from the client for ``time_ms`` (Q5).
    """

    time_ms: int = 0

    def at_least(self, time_ms: int) -> None:
        """Mute the client for ``time_ms`` or longer.

        If several quotas are exceeded, the longest time counts (Q11).
        """
        self.time_ms = min(max(self.time_ms, time_ms), _INT32_MAX)


@dataclass(slots=True)
class RequestContext:
    """The sender of a request, the listener that it used, and the version of the API.

    Nobody changes it. It is not frozen, because that would make it three times as dear.
    """

    version: int
    client_id: str
    client_host: str
    principal: KafkaPrincipal = ANONYMOUS
    listener: str = DEFAULT_LISTENER
    """The listener that the client used. Responses contain the addresses that brokers have at
    this listener.
    """
    sasl: SaslSession | None = None
    """The SASL session of the connection, or None if its listener does not use SASL."""
    throttle: RequestThrottle = field(default_factory=RequestThrottle, compare=False)
    """A handler that finds a quota exceeded records the throttle time here."""
    lease: ResponseLease = field(
        default_factory=lambda: ResponseLease(ResponseMemory()), compare=False
    )
    """A handler that reads records for the response reserves memory for them here."""
    connection: ClientConnection = field(default_factory=ClientConnection, compare=False)
    """The connection, with the software that the client says it is."""
    fetch_bytes_max: int = FETCH_BYTES_UNLIMITED
    """The most bytes that the quota of the client lets one Fetch return."""

    def for_controller(
        self, api_name: str, timeout_ms: int, *, accept_over_quota: bool = False
    ) -> admin_pb2.RequestContext:
        """Return the context of a change that is forwarded to the controller (F2, F5).

        It names the client on whose behalf the change comes. ``timeout_ms`` is the rest of its
        deadline. ``accept_over_quota`` is True for an old client, which would not understand that a
        change is refused because of its quota (Q4).
        """
        return admin_pb2.RequestContext(
            principal_name=str(self.principal),
            client_host=self.client_host,
            client_id=self.client_id,
            timeout_ms=max(0, timeout_ms),
            forwarded_by=_NOT_FORWARDED,
            api_name=api_name,
            token_authenticated=self.principal.token_authenticated,
            accept_over_quota=accept_over_quota,
        )


Handler: TypeAlias = Callable[[KafkaServices, RequestContext, Any], Coroutine[Any, Any, Any]]
"""Carries out a decoded request and returns the response, which is encoded afterwards."""


Begun: TypeAlias = Callable[[], Work | None]
"""A ``Begin`` with its arguments."""
Begin: TypeAlias = Callable[[KafkaServices, RequestContext, Any], Work | None]
"""Begins a decoded request without a task, and returns what gives its encoded response later, or
None if the handler must carry it out.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API that this broker serves. Only these APIs are advertised.

    ``decode`` and ``encode`` are None if kio's layouts describe request and response, which are
    dicts then. They work in steps, and small messages go through all of them at once. ``work`` is
    the price of a request, which every API has to declare. ``response_bytes_max`` returns the
    largest size of the response to a decoded request; it is None if responses are too small to be
    counted. ``abandonable`` means that nobody needs the outcome once the client has disconnected.
    ``throttle_place`` returns where a response of a version has its throttle_time_ms, if that is
    not at the beginning: an offset from the beginning of the response, or, if negative, from its
    end.
    """

    key: int
    min_version: int
    max_version: int
    handle: Handler
    """Carries the request out. The handlers are registered in ``kafka.api_table``."""
    work: RequestWork
    decode: Callable[[int, Cursor], Steps[Any]] | None = None
    decode_small: Callable[[int, Cursor], Any | None] | None = None
    """Decodes the usual requests, faster than ``decode``; it returns None for others."""
    first_flexible_version: int
    encode: Callable[[int, Any], Steps[Buffers]] | None = None
    response_bytes_max: Callable[[KafkaServices, Any], int] | None = None
    abandonable: bool = False
    throttle_place: Callable[[int], int | None] | None = None
    begin: Begin | None = None
    """Carries out a small request of a client without quotas instead of ``handle``, if it can."""
    is_pipelined: bool = False
    """True if requests start beside unfinished ones of other such APIs, because each shows its
    effect in their order by itself, or has none that the others could miss (decision 56).
    """
    is_eager: bool = False
    """True if requests are carried out by a ``RequestTask``: most take little time, and the handler
    uses nothing that needs a task of asyncio.
    """
    refused_over_quota_from: int = 0
    """The first version whose clients know THROTTLING_QUOTA_EXCEEDED (Q4). Clients of earlier
    versions are muted when they exceed the quota of controller mutations.
    """

    name: str = field(init=False)
    """The name of the API in kio's spelling, such as ``list_offsets``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", api_key_map[self.key])

    @property
    def changes_state(self) -> bool:
        """True if requests have an effect that others see. It is carried out to its end."""
        return not self.abandonable

    def place_of_throttle(self, version: int) -> int | None:
        """Return where a response has its throttle time, or None if it has none."""
        if self.throttle_place is not None:
            return self.throttle_place(version)
        return codec.throttle_place(self.name, version)

    def decode_body(self, version: int, cursor: Cursor) -> Any:  # noqa: ANN401 - its handler's type
        if self.decode is not None:
            return at_once(self.decode(version, cursor))
        return codec.decode_request(self.name, version, cursor)

    def decode_body_in_steps(self, version: int, cursor: Cursor) -> Steps[Any]:
        if self.decode is not None:
            return self.decode(version, cursor)
        return stepwise.decode_in_steps(self.name, version, cursor)

    def encode_body(self, version: int, response: Any) -> Buffers:  # noqa: ANN401 - its handler's type
        if self.encode is not None:
            return at_once(self.encode(version, response))
        return [codec.encode_response(self.name, version, response)]


class Request(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A decoded request that is ready to run.

    ``cost_bytes`` is the memory that it holds until its response is sent. ``lease`` is the memory
    of its response; the code that started the request releases it in the end. ``bare`` marks a SASL
    token that came without a request header, so its response has no header either. ``turn`` says
    how long the request has to wait because its client is muted; it is None if the client has no
    quotas. ``alone`` marks a request before whose end no later request of the connection starts:
    one that changes what the later ones must see, or a large one that is carried out in slices,
    because slices of both would mix. A request that is not ``pipelined`` starts after the end of
    all earlier ones that change state. ``decoded_bytes`` is the memory of its elements. ``begin``
    carries it out without a task of asyncio, or returns None if only ``run`` can.
    """

    api_name: str
    correlation_id: int
    cost_bytes: int
    abandonable: bool
    flexible_response_header: bool
    run: Callable[[], Coroutine[Any, Any, Buffers]]
    bare: bool = False
    alone: bool = False
    pipelined: bool = True
    decoded_bytes: int = 0
    begin: Begun | None = None
    throttle: RequestThrottle = msgspec.field(default_factory=RequestThrottle)
    lease: ResponseLease = msgspec.field(default_factory=lambda: ResponseLease(ResponseMemory()))
    turn: QuotaTurn | None = None
