"""The metrics listener of a broker: it opens first and closes last, so that the health of a broker
that starts or stops can be asked for."""

from contextlib import AsyncExitStack

from quorate.broker.assembly.kafka_listeners import address_taken
from quorate.broker.assembly.shared_parts import SharedParts
from quorate.common.metrics.metrics_endpoint import (
    METRICS_LISTENER,
    MetricsEndpoint,
    metrics_listener,
)


async def open_metrics(shared: SharedParts, cleanup: AsyncExitStack) -> None:
    """Serve the figures and the health of this broker, if it is configured to.

    Raises:
        ListenError: the address is taken.
    """
    listener = metrics_listener(shared.config[METRICS_LISTENER])
    if listener is None:
        return
    endpoint = MetricsEndpoint(shared.metrics.gathered, shared.readiness.why_unready)
    try:
        await endpoint.start(listener)
    except OSError as error:
        raise address_taken(METRICS_LISTENER.name, listener) from error
    cleanup.push_async_callback(endpoint.stop)
