"""GetTelemetrySubscriptions (71) and PushTelemetry (72): clients push their own metrics (KIP-714).

No right is needed, as in Kafka: a client pushes only what operators have subscribed to.
"""

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.telemetry import TELEMETRY_MAX_BYTES
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.telemetry.client_telemetry import Push, PushingClient
from quorate.broker.telemetry.payload import COMPRESSION_TYPES
from quorate_proto.v1 import errors_pb2


async def get_telemetry_subscriptions(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """Tell a client what it is to push, and how often."""
    instance_id, subscription = services.telemetry.ask(
        _client(context), request["client_instance_id"]
    )
    return {
        "throttle_time": 0,
        "error_code": errors_pb2.NONE,
        "client_instance_id": instance_id,
        "subscription_id": subscription.subscription_id,
        "accepted_compression_types": COMPRESSION_TYPES,
        "push_interval": subscription.interval_ms,
        "telemetry_max_bytes": services.config[TELEMETRY_MAX_BYTES],
        "delta_temporality": True,
        "requested_metrics": subscription.metrics,
    }


async def push_telemetry(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """Take over the metrics of a client."""
    push = Push(
        request["client_instance_id"],
        request["subscription_id"],
        request["terminating"],
        request["compression_type"],
        bytes(request["metrics"]),
    )
    code: int = errors_pb2.NONE
    try:
        await services.telemetry.push(_client(context), push, services.config[TELEMETRY_MAX_BYTES])
    except KafkaError as error:
        code = error.code
    return {"throttle_time": 0, "error_code": code}


def _client(context: RequestContext) -> PushingClient:
    return PushingClient(context.client_id, context.client_host, context.connection)
