"""The keys of the telemetry of clients (KIP-714)."""

from typing import Final

from quorate.common.configuration import ConfigKey

TELEMETRY_MAX_BYTES: Final = ConfigKey(
    name="telemetry.max.bytes",
    type=int,
    default=1 << 20,
    at_least=1,
    at_most=3 << 20,
    doc="The largest push of metrics that is accepted from a client, compressed or not.",
)
