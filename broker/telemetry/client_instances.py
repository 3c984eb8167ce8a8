"""The clients that take part in telemetry: what each is to push, and when it may (KIP-714).

This module is pure. An instance that is silent is forgotten, and so is the one that was silent for
longest when there are too many. A client that was forgotten is a new one: nothing of it was needed.
"""

import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.telemetry.subscriptions import ClientSubscription, kafka_text
from quorate_proto.v1 import errors_pb2

INSTANCES_MAX: Final = 16_384
"""As many as Kafka's brokers remember."""

EXPIRY_MS: Final = 60_000
"""How long a silent instance is remembered, or three push intervals if that is longer."""

_LONG_AGO_MS: Final = -(2**62)

_NEW_REQUEST_IS_RIGHT: Final = (
    errors_pb2.UNKNOWN_SUBSCRIPTION_ID,
    errors_pb2.UNSUPPORTED_COMPRESSION_TYPE,
)
"""The errors after which a client must ask for its subscription at once."""


class ClientConnection:
    """The connection of a client, and the software that the client says it is (KIP-511)."""

    __slots__ = ("port", "software_name", "software_version", "watchers")

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.software_name = ""
        self.software_version = ""
        self.watchers: dict[Callable[[], None], None] = {}
        """What is called when the connection closes."""

    def closed(self) -> None:
        """Tell the watchers that the connection has closed."""
        while self.watchers:
            watcher, _ = self.watchers.popitem()
            watcher()


@dataclass(slots=True, eq=False)
class ClientInstance:
    """One client, from its first request on a connection to a broker.

    Kafka forgets an instance when its connection closes. Here the same comes about when it sends a
    request by another connection.
    """

    instance_id: uuid.UUID
    client_id: str
    connection: ClientConnection
    subscription: ClientSubscription
    version: int
    """Which state of all subscriptions ``subscription`` was made from."""
    expires_ms: int = 0
    last_error: int = errors_pb2.NONE
    is_terminating: bool = False
    _last_get_ms: int = field(default=_LONG_AGO_MS)
    _last_push_ms: int = field(default=_LONG_AGO_MS)

    @property
    def label(self) -> str:
        """The id as Kafka's clients write it."""
        return kafka_text(self.instance_id)

    def ask(self, now_ms: int) -> None:
        """Take a request for the subscription.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED if the push interval has not passed.
        """
        last_ms = max(self._last_get_ms, self._last_push_ms)
        if now_ms - last_ms >= self.subscription.interval_ms:
            self._last_get_ms = now_ms
        elif self.last_error not in _NEW_REQUEST_IS_RIGHT:
            raise self._too_early()

    def push(self, now_ms: int, *, is_terminating: bool) -> None:
        """Take a push. The first one after a request for the subscription may come at any time,
        since clients vary their intervals, and so may the last one of a client.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED if the push interval has not passed, and
                INVALID_REQUEST after a terminating push.
        """
        if self.is_terminating:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST,
                f"client instance {self.label} has said that it terminates",
            )
        is_first = self._last_get_ms > self._last_push_ms
        if is_first or now_ms - self._last_push_ms >= self.subscription.interval_ms:
            self._last_push_ms = now_ms
        elif not is_terminating:
            raise self._too_early()

    def _too_early(self) -> KafkaError:
        return KafkaError(
            errors_pb2.THROTTLING_QUOTA_EXCEEDED,
            f"client instance {self.label} does not wait for its push interval of "
            f"{self.subscription.interval_ms} ms",
        )


class ClientInstances:
    """The remembered instances of one broker, in the order of their last requests."""

    def __init__(self, instances_max: int = INSTANCES_MAX) -> None:
        self._instances_max = instances_max
        self._instances: OrderedDict[uuid.UUID, ClientInstance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._instances)

    def find(self, instance_id: uuid.UUID, now_ms: int) -> ClientInstance | None:
        """Return an instance that has not expired."""
        found = self._instances.get(instance_id)
        return None if found is None or found.expires_ms <= now_ms else found

    def heard(self, instance: ClientInstance, now_ms: int) -> None:
        """Remember an instance, because a request of it has come."""
        instance.expires_ms = now_ms + max(EXPIRY_MS, 3 * instance.subscription.interval_ms)
        self._instances[instance.instance_id] = instance
        self._instances.move_to_end(instance.instance_id)
        while len(self._instances) > self._instances_max:
            self._instances.popitem(last=False)

    def forget_expired(self, now_ms: int) -> None:
        expired = [one for one, known in self._instances.items() if known.expires_ms <= now_ms]
        for instance_id in expired:
            del self._instances[instance_id]
