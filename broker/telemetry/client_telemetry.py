"""The telemetry of clients at one broker: who is to push what, and what was pushed (KIP-714).

Payloads are decoded on a thread of their own, one after the other. While many wait for it, further
pushes are refused as too early, and their clients try again an interval later.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.client_metrics_keys import CLIENT_METRICS
from quorate.broker.config.telemetry import TELEMETRY_MAX_BYTES
from quorate.broker.telemetry.client_instances import (
    ClientConnection,
    ClientInstance,
    ClientInstances,
)
from quorate.broker.telemetry.payload import COMPRESSION_TYPES, Decoded, InvalidPayload, decode
from quorate.broker.telemetry.pushed_figures import PushedFigures
from quorate.broker.telemetry.subscriptions import (
    ClientAttributes,
    ClientSubscription,
    Subscription,
    kafka_text,
    subscription_of,
    subscriptions_of,
)
from quorate.common.metrics.family import Family, MetricKind, Sample
from quorate.metadata_log.image import Changes, Image
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

INSTANCES: Final = Family(
    "quorate_client_telemetry_instances",
    MetricKind.GAUGE,
    "client-metrics",
    "client-metrics-instance-count",
    "Clients that take part in telemetry (KIP-714) at this broker.",
)
UNKNOWN_SUBSCRIPTIONS: Final = Family(
    "quorate_client_telemetry_unknown_subscriptions_total",
    MetricKind.COUNTER,
    "client-metrics",
    "client-metrics-unknown-subscription-request-count",
    "Pushes of clients that did not know of a change of their subscription.",
)
THROTTLED: Final = Family(
    "quorate_client_telemetry_throttled_total",
    MetricKind.COUNTER,
    "client-metrics",
    "client-metrics-throttle-count",
    "Requests of clients that did not wait for their push interval, or came while too many waited.",
)
FAILED: Final = Family(
    "quorate_client_telemetry_failed_total",
    MetricKind.COUNTER,
    "client-metrics",
    "client-metrics-plugin-error-count",
    "Pushes that could not be decoded.",
)

_DECODING_MAX: Final = 64
"""The most pushes that are decoded or wait for it."""

_SWEEP_MS: Final = 10_000
"""How often what has expired is looked for."""

_PLAIN: Final = 0

_ZERO: Final = uuid.UUID(int=0)
_RESERVED: Final = (_ZERO, uuid.UUID(int=1))
"""Kafka's reserved ids."""


class Push(NamedTuple):
    """A push of metrics, as the client sends it."""

    instance_id: uuid.UUID | None
    subscription_id: int
    is_terminating: bool
    compression_type: int
    metrics: bytes


class PushingClient(NamedTuple):
    """Who sends a request."""

    client_id: str
    host: str
    connection: ClientConnection

    def attributes(self, instance_id: uuid.UUID) -> ClientAttributes:
        return ClientAttributes(
            kafka_text(instance_id),
            self.client_id,
            self.connection.software_name,
            self.connection.software_version,
            self.host,
            str(self.connection.port),
        )


class ClientTelemetry:
    """Answers the requests of telemetry, and shows what was pushed."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        draw_id: Callable[[], uuid.UUID] = uuid.uuid4,
        executor: Executor | None = None,
    ) -> None:
        """``now_ms`` is a monotonic clock. ``draw_id`` returns the id of a new client."""
        self._now_ms = now_ms
        self._draw_id = draw_id
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="telemetry")
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        self._instances = ClientInstances()
        self._figures = PushedFigures()
        self._decoding = 0
        self._swept_ms = now_ms()
        self._unknown = self._throttled = self._failed = 0

    @property
    def subscription_names(self) -> tuple[str, ...]:
        """The names of all subscriptions, sorted."""
        return tuple(self._subscriptions)

    def set_subscriptions(self, image: Image) -> None:
        """Put the subscriptions of an image in force."""
        self._subscriptions = subscriptions_of(image)
        self._version += 1

    def on_image(self, image: Image, changes: Changes) -> None:
        """Take over the subscriptions of the newest image, if one of them has changed."""
        if any(kind == CLIENT_METRICS for kind, _ in changes.configs):
            self.set_subscriptions(image)

    def ask(
        self, client: PushingClient, instance_id: uuid.UUID | None
    ) -> tuple[uuid.UUID, ClientSubscription]:
        """Return the id of a client, which is a new one if it has none, and what it is to push.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED if it asks too often.
        """
        known_as = instance_id if instance_id not in (None, _ZERO) else self._draw_id()
        instance = self._instance(client, known_as)
        try:
            instance.ask(self._now_ms())
        except KafkaError:
            self._throttled += 1
            raise
        instance.last_error = errors_pb2.NONE
        return known_as, instance.subscription

    async def push(self, client: PushingClient, push: Push, max_bytes: int) -> None:
        """Take over the metrics of a client.

        Raises:
            KafkaError: the push is refused; the codes are Kafka's.
        """
        if push.instance_id is None or push.instance_id in _RESERVED:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST, f"{push.instance_id} is no client instance id"
            )
        instance = self._instance(client, push.instance_id)
        try:
            self._check(instance, push, max_bytes)
            decoded = await self._decoded(instance, push, max_bytes)
        except KafkaError as error:
            instance.last_error = error.code
            self._count(error.code)
            raise
        finally:
            instance.is_terminating = push.is_terminating
        self._figures.take(instance, decoded)
        instance.last_error = errors_pb2.NONE

    def _check(self, instance: ClientInstance, push: Push, max_bytes: int) -> None:
        instance.push(self._now_ms(), is_terminating=push.is_terminating)
        if push.subscription_id != instance.subscription.subscription_id:
            raise KafkaError(
                errors_pb2.UNKNOWN_SUBSCRIPTION_ID,
                f"the subscription is {instance.subscription.subscription_id} now",
            )
        if push.compression_type not in (_PLAIN, *COMPRESSION_TYPES):
            raise KafkaError(
                errors_pb2.UNSUPPORTED_COMPRESSION_TYPE,
                f"there is no compression type {push.compression_type}",
            )
        if len(push.metrics) > max_bytes:
            raise KafkaError(
                errors_pb2.TELEMETRY_TOO_LARGE,
                f"{len(push.metrics)} bytes are more than {TELEMETRY_MAX_BYTES.name}={max_bytes}",
            )

    async def _decoded(self, instance: ClientInstance, push: Push, max_bytes: int) -> Decoded:
        if not push.metrics:
            return Decoded((), 0)
        if self._decoding >= _DECODING_MAX:
            raise KafkaError(
                errors_pb2.THROTTLING_QUOTA_EXCEEDED,
                f"{self._decoding} pushes wait for being decoded",
            )
        self._decoding += 1
        work = partial(
            decode, push.compression_type, push.metrics, max_bytes, instance.subscription
        )
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except InvalidPayload as error:
            log.warning("metrics of %s cannot be read: %s", instance.label, error)
            raise KafkaError(errors_pb2.INVALID_RECORD, str(error)) from None
        finally:
            self._decoding -= 1

    def _instance(self, client: PushingClient, instance_id: uuid.UUID) -> ClientInstance:
        """Return the remembered instance, or a new one. Subscriptions that have changed, and
        another connection, make a new one of it.
        """
        self._sweep()
        now_ms = self._now_ms()
        instance = self._instances.find(instance_id, now_ms)
        if (
            instance is None
            or instance.version != self._version
            or instance.connection is not client.connection
        ):
            instance = ClientInstance(
                instance_id,
                client.client_id,
                client.connection,
                subscription_of(
                    client.attributes(instance_id), instance_id, self._subscriptions.values()
                ),
                self._version,
            )
        self._instances.heard(instance, now_ms)
        return instance

    def _count(self, code: int) -> None:
        self._unknown += code == errors_pb2.UNKNOWN_SUBSCRIPTION_ID
        self._throttled += code == errors_pb2.THROTTLING_QUOTA_EXCEEDED
        self._failed += code == errors_pb2.INVALID_RECORD

    def _sweep(self) -> None:
        now_ms = self._now_ms()
        if now_ms - self._swept_ms >= _SWEEP_MS:
            self._swept_ms = now_ms
            self._instances.forget_expired(now_ms)
            self._figures.forget_expired(now_ms)

    def samples(self) -> Iterator[Sample]:
        self._sweep()
        yield Sample(INSTANCES, len(self._instances))
        yield Sample(UNKNOWN_SUBSCRIPTIONS, self._unknown)
        yield Sample(THROTTLED, self._throttled)
        yield Sample(FAILED, self._failed)
        yield from self._figures.samples()
